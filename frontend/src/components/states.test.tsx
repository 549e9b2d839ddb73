import { MantineProvider } from '@mantine/core'
import { cleanup, render, screen } from '@testing-library/react'
import { afterEach, expect, test, vi } from 'vitest'

import '@/lib/i18n'
import { Problem } from '@/lib/api/problem'

import { Loaded, type Query } from './states'

afterEach(cleanup)

const nothing: Query<string> = { data: undefined, error: null, refetch: vi.fn() }
const shown = (query: Query<string>) => (
  <MantineProvider env="test">
    <Loaded query={query}>{(data) => data}</Loaded>
  </MantineProvider>
)
const broken = (status: number) => ({ ...nothing, error: new Problem(status, { detail: 'No answer.' }) })

test('what is wrong stays in sight while the server is asked again', () => {
  const { rerender } = render(shown(nothing))
  expect(screen.getByRole('group', { name: 'Loading' })).toBeTruthy()
  rerender(shown(broken(503)))
  rerender(shown(nothing))
  expect(screen.getByText('No answer.')).toBeTruthy()
  rerender(shown({ ...nothing, data: 'Here it is.' }))
  expect(screen.queryByText('No answer.')).toBeNull()
})

test('an answer about one thing is not shown for the next', () => {
  const { rerender } = render(shown(broken(404)))
  rerender(shown(nothing))
  expect(screen.queryByText('No answer.')).toBeNull()
})

test('data stay in sight when asking again fails', () => {
  const { rerender } = render(shown({ ...nothing, data: 'Here it is.' }))
  rerender(shown({ ...broken(404), data: 'Here it is.' }))
  expect(screen.getByText('Here it is.')).toBeTruthy()
  rerender(shown({ ...broken(503), data: 'Here it is.' }))
  expect(screen.getByText('Here it is.')).toBeTruthy()
})
