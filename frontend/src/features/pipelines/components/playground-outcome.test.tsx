import { MantineProvider } from '@mantine/core'
import { cleanup, render, screen } from '@testing-library/react'
import { afterEach, expect, test } from 'vitest'

import '@/lib/i18n'
import type { DryRun } from '@/features/pipelines/api/pipelines'

import { PlaygroundOutcome } from './playground-outcome'

afterEach(cleanup)

type Sent = DryRun['outputs'][number]['sent']

function show(sent: Sent, error = '') {
  const outcome: DryRun = {
    topics: [],
    steps: [],
    error: '',
    results: [{ body: '{"id":7}', is_base64: false, content_type: 'application/json', index: '', taken_by: [] }],
    calls: [],
    outputs: [{ name: 'orders', target: 'table orders of db', error, sent }],
  }
  render(
    <MantineProvider env="test">
      <PlaygroundOutcome outcome={outcome} />
    </MantineProvider>,
  )
}

test('an output shows what it writes and where', () => {
  show([{ body: '{"n":7}', is_base64: false, place: 'row with n 7', deletes: false }])
  expect(screen.getByText('row with n 7')).toBeTruthy()
  expect(screen.getByText('{"n":7}')).toBeTruthy()
  expect(screen.queryByText('Deletion')).toBeNull()
})

test('a deletion is marked, and shows no payload', () => {
  show([{ body: '', is_base64: false, place: 'row with n 7', deletes: true }])
  expect(screen.getByText('Deletion')).toBeTruthy()
  expect(document.querySelectorAll('pre')).toHaveLength(0)
})

test('an empty payload is shown', () => {
  show([{ body: '', is_base64: false, place: '', deletes: false }])
  expect(document.querySelectorAll('pre')).toHaveLength(1)
})

test('a message that an output refuses is not said to be delivered', () => {
  show([], 'The message has no value for column id of the key.')
  expect(screen.getByText('Refused by 1 of 1 outputs')).toBeTruthy()
  expect(screen.queryByText('1 message would be delivered')).toBeNull()
})
