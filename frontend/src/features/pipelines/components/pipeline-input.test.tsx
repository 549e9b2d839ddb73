import { MantineProvider } from '@mantine/core'
import { cleanup, render, screen } from '@testing-library/react'
import { afterEach, expect, test } from 'vitest'

import type { InputState } from '@/features/pipelines/api/pipelines'
import '@/lib/i18n'
import { PreferencesProvider } from '@/lib/preferences'

import { InputCard } from './pipeline-input'

afterEach(cleanup)

const batch: InputState = {
  state: 'reading',
  reading: 'batching',
  first: true,
  began_at: '2026-10-25T00:30:00Z',
  rows: 2500,
  estimate: 10_000,
  last_batch: null,
  next_at: null,
  breakpoint: '{"position":[2500]}',
  failure: '',
  failing_since: null,
  parts: null,
}

function show(input: InputState) {
  render(
    <MantineProvider env="test">
      <PreferencesProvider>
        <InputCard input={input} />
      </PreferencesProvider>
    </MantineProvider>,
  )
}

test('a first load shows how far it has come, and where it would go on', () => {
  show(batch)
  expect(screen.getByRole('progressbar').getAttribute('aria-valuenow')).toBe('25')
  expect(screen.getByText(/2,500 of about 10,000 rows/)).toBeTruthy()
  expect(screen.getByText('{"position":[2500]}')).toBeTruthy()
  expect(screen.getByText('Reading')).toBeTruthy()
})

test('a batch in parts shows how many are left, and one in one piece does not', () => {
  show({ ...batch, parts: { left: 3, total: 4 } })
  expect(screen.getByText('3 of 4 left to read')).toBeTruthy()
  cleanup()
  show(batch)
  expect(screen.queryByText('Parts')).toBeNull()
})

test('more rows than were estimated fill the bar and no more', () => {
  show({ ...batch, rows: 20_000 })
  expect(screen.getByRole('progressbar').getAttribute('aria-valuenow')).toBe('100')
})

test('a later batch has no bar, and its last error is shown with the time', () => {
  const last_batch = { began_at: '2026-10-25T00:30:00Z', ended_at: '2026-10-25T00:31:00Z', rows: 10_000 }
  const failure = 'The table is gone.'
  show({ ...batch, state: 'failing', first: false, last_batch, failure, failing_since: '2026-10-25T00:32:00Z' })
  expect(screen.queryByRole('progressbar')).toBeNull()
  expect(screen.getByText('The table is gone.')).toBeTruthy()
  expect(screen.getByText(/^10,000 rows/)).toBeTruthy()
})

test('a stream shows what waits, if that is known', () => {
  const stream: InputState = { ...batch, reading: 'streaming', first: false, rows: 7, estimate: 42, breakpoint: '' }
  show(stream)
  expect(screen.getByText('42')).toBeTruthy()
  expect(screen.getByText(/7 rows/)).toBeTruthy()
})
