import { MantineProvider } from '@mantine/core'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { afterEach, expect, test, vi } from 'vitest'

import '@/lib/i18n'
import { focusOn } from '@/lib/focus'

import { ProblemList } from './problem-list'

afterEach(cleanup)

test('all problems stand together, and each leads to its field', () => {
  const onJump = vi.fn()
  const titles: Record<string, string> = { name: 'Name', 'connection.url': 'Address' }
  render(
    <MantineProvider env="test">
      <ProblemList
        errors={{ name: ['Too long.'], 'connection.url': ['No address.', 'No host.'], '': ['Not allowed.'] }}
        onJump={onJump}
        nameOf={(field) => titles[field] ?? field}
      />
    </MantineProvider>,
  )
  expect(screen.getAllByRole('listitem').map((item) => item.textContent)).toEqual([
    'Name: Too long.',
    'Address: No address. No host.',
    'Configuration: Not allowed.',
  ])
  fireEvent.click(screen.getByRole('button', { name: 'Address' }))
  expect(onJump).toHaveBeenCalledExactlyOnceWith('connection.url')
})

test('without problems there is no list', () => {
  render(
    <MantineProvider env="test">
      <ProblemList errors={{}} onJump={vi.fn()} />
    </MantineProvider>,
  )
  expect(screen.queryByRole('alert')).toBeNull()
})

test('a jump leads into a group of fields, and to the field above one that is not there', async () => {
  render(
    <div id="form_auth">
      <input aria-label="User" />
    </div>,
  )
  focusOn('form_auth')
  expect(document.activeElement).toBe(screen.getByLabelText('User'))
  screen.getByLabelText('User').blur()
  focusOn('form_auth_token_value')
  await vi.waitFor(() => expect(document.activeElement).toBe(screen.getByLabelText('User')), { timeout: 30_000 })
})
