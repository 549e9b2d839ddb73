import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen } from '@testing-library/react'
import { MemoryRouter } from 'react-router'
import { afterEach, expect, test } from 'vitest'

import '@/lib/i18n'
import { PreferencesProvider } from '@/lib/preferences'
import type { ExportDetail, Waiting } from '@/features/exports/api/exports'

import { columnsOf, ExportActions, Failure } from './export-details'
import { ExportState } from './export-state'
import { rows } from './export-table'
import { ExportsPage } from './exports-page'

afterEach(cleanup)

const file: ExportDetail = {
  id: 'e1',
  pipeline: 'p1',
  output: 'lake',
  version: 1,
  connector: 'c1',
  number: 1,
  path: 'orders/00000001.csv',
  state: 'failed',
  rows: 5000,
  bytes: 1000,
  written_rows: 1200,
  file_bytes: null,
  created_at: '2026-03-01T12:00:00Z',
  committed_at: null,
  reason: 'connection',
  error: 'The store is down.',
  failures: 1,
  due_at: null,
  can_retry: true,
  manifest: null,
  preview: null,
}
const waiting: Waiting = {
  pipeline: 'p1',
  output: 'lake',
  version: 1,
  messages: 20,
  bytes: 2000,
  oldest: '2026-03-01T12:00:00Z',
  due_at: null,
}

function show(content: React.ReactNode, { role = 'operator', files = [file], groups = [waiting] } = {}) {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity, retry: false } } })
  client.setQueryData(['me'], { username: 'ana', workspaces: [{ slug: 'main', name: 'Main', role }] })
  client.setQueryData(['exports', 'list', {}], { pages: [{ results: files, next: null }], pageParams: [''] })
  client.setQueryData(['exports', 'waiting'], groups)
  client.setQueryData(['pipelines'], [])
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={client}>
        <PreferencesProvider>
          <MemoryRouter>{content}</MemoryRouter>
        </PreferencesProvider>
      </QueryClientProvider>
    </MantineProvider>,
  )
}

const buttons = () => screen.queryAllByRole('button').map(({ textContent }) => textContent)

test('an operator retries and aborts what failed', () => {
  show(<ExportActions file={file} />)
  expect(buttons()).toEqual(['Retry', 'Retry with the published version', 'Abort'])
})

test('a viewer may do neither', () => {
  show(<ExportActions file={file} />, { role: 'viewer' })
  expect(buttons()).toEqual([])
})

test('nothing is to be done about a file that is stored, nor about one whose messages are not kept', () => {
  show(<ExportActions file={{ ...file, state: 'committed', can_retry: false }} />)
  show(<ExportActions file={{ ...file, state: 'aborted', can_retry: false }} />)
  expect(buttons()).toEqual([])
})

test('what is written can only be aborted', () => {
  show(<ExportActions file={{ ...file, state: 'writing', can_retry: false }} />)
  expect(buttons()).toEqual(['Abort'])
})

test('a failure that is retried by itself waits, one that is not has failed', () => {
  show(<ExportState file={{ state: 'failed', due_at: '2026-03-01T12:00:00Z' }} />)
  expect(screen.getByText('Waiting to retry')).toBeTruthy()
  cleanup()
  show(<ExportState file={{ state: 'failed', due_at: null }} />)
  expect(screen.getByText('Failed')).toBeTruthy()
})

test('the rows of a file that is written are those so far, of all', () => {
  expect(rows({ ...file, state: 'writing' }, 'en')).toBe('1,200 / 5,000')
  expect(rows(file, 'en')).toBe('5,000')
})

test('columns have types where the format has', () => {
  const schema = [{ name: 'id', type: 'integer' }]
  expect(columnsOf({ format: 'parquet', schema })).toBe('id (integer)')
  expect(columnsOf({ format: 'csv', schema })).toBe('id')
})

test('the page shows what is collected, and why a file failed', () => {
  show(<ExportsPage />)
  expect(screen.getByText('Being collected')).toBeTruthy()
  expect(screen.getByText('when it is full')).toBeTruthy()
  expect(screen.getByText(/The store is down/)).toBeTruthy()
})

test('an empty page says what will be here', () => {
  show(<ExportsPage />, { files: [], groups: [] })
  expect(screen.getByText('No files yet')).toBeTruthy()
  expect(screen.queryByText('Being collected')).toBeNull()
})

test('a file that is written again after a failure is not said to be lost', () => {
  show(<Failure file={{ ...file, state: 'staged', can_retry: false, due_at: '2026-03-01T12:00:00Z' }} />)
  expect(screen.getByText('The store is down.')).toBeTruthy()
  expect(screen.queryByText(/no longer kept/)).toBeNull()
  cleanup()
  show(<Failure file={{ ...file, can_retry: false }} />)
  expect(screen.getByText(/no longer kept/)).toBeTruthy()
})
