import { MantineProvider } from '@mantine/core'
import { act, cleanup, render, screen } from '@testing-library/react'
import { afterEach, expect, test, vi } from 'vitest'

import '@/lib/i18n'
import { PreferencesProvider } from '@/lib/preferences'

import { Time } from './time'

afterEach(() => {
  cleanup()
  vi.useRealTimers()
})

test('how long ago it was grows while it is in sight', () => {
  vi.useFakeTimers({ now: new Date('2026-03-01T12:00:05Z') })
  const { unmount } = render(
    <MantineProvider env="test">
      <PreferencesProvider>
        <Time at="2026-03-01T12:00:00Z" />
      </PreferencesProvider>
    </MantineProvider>,
  )
  expect(screen.getByRole('time').textContent).toMatch(/5 sec ago/)
  act(() => {
    vi.advanceTimersByTime(60_000)
  })
  expect(screen.getByRole('time').textContent).toMatch(/1 min ago/)
  unmount()
  expect(vi.getTimerCount()).toBe(0)
})
