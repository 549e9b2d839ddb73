import { MantineProvider } from '@mantine/core'
import { cleanup, render, screen } from '@testing-library/react'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'

import '@/lib/i18n'

import { LoadMore } from './load-more'

let see: () => void

beforeEach(() => {
  see = () => undefined
  vi.stubGlobal(
    'IntersectionObserver',
    class {
      constructor(callback: (entries: { isIntersecting: boolean }[]) => void) {
        see = () => callback([{ isIntersecting: true }])
      }
      observe = vi.fn()
      disconnect = () => {
        see = () => undefined
      }
    },
  )
})

afterEach(cleanup)

const query = { hasNextPage: true, isFetchingNextPage: false, isFetchNextPageError: false }

function show(changes: Partial<typeof query>) {
  const fetchNextPage = vi.fn()
  render(
    <MantineProvider env="test">
      <LoadMore query={{ ...query, ...changes, fetchNextPage }} />
    </MantineProvider>,
  )
  see()
  return fetchNextPage
}

test('the next page is loaded when the end comes into sight', () => {
  expect(show({})).toHaveBeenCalledTimes(1)
})

test('it is not asked for twice, and after a failure only by hand', () => {
  expect(show({ isFetchingNextPage: true })).not.toHaveBeenCalled()
  cleanup()
  const fetchNextPage = show({ isFetchNextPageError: true })
  expect(fetchNextPage).not.toHaveBeenCalled()
  screen.getByRole('button', { name: 'Load more' }).click()
  expect(fetchNextPage).toHaveBeenCalledTimes(1)
})

test('a list without further pages has no button', () => {
  show({ hasNextPage: false })
  expect(screen.queryByRole('button')).toBeNull()
})
