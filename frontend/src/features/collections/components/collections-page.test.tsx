import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { MemoryRouter, Route, Routes } from 'react-router'
import { afterEach, expect, test } from 'vitest'

import '@/lib/i18n'
import { PreferencesProvider } from '@/lib/preferences'
import type { Collection, CollectionDetail, CollectionDocument } from '@/features/collections/api/collections'
import type { ChangeStream } from '@/features/collections/api/streams'

import { CollectionPage } from './collection-page'
import { CollectionsPage } from './collections-page'

afterEach(cleanup)

const listed: Collection = {
  id: 'c1',
  name: 'orders',
  created_at: '2026-03-01T12:00:00Z',
  partitions: 2,
  documents: 1500,
  bytes: 20_000,
  newest: 1772366400000,
  leader_epoch: 0,
  unavailable: '',
}
const detail: CollectionDetail = {
  ...listed,
  partition_states: [
    { partition: 0, start_offset: 10, end_offset: 1510, documents: 1500, bytes: 20_000, files: 3, oldest: 1772366400000, newest: 1772366400000 },
    { partition: 1, start_offset: 0, end_offset: 0, documents: 0, bytes: 0, files: 0, oldest: null, newest: null },
  ],
  topic: 'orders',
  table: '/var/collections/w1/c1',
  keep_hours: 24,
  keep_bytes: null,
  avro_schema: null,
  reduce: 'last_by_key',
  values: 'json',
  deletions: 'cdc',
}
const document: CollectionDocument = {
  offset: 1509,
  timestamp: 1772366400000,
  key: 'k7',
  key_encoding: 'utf-8',
  value: '{"id":7}',
  encoding: 'utf-8',
  is_cut: false,
  bytes: 8,
  deleted: true,
  headers: { 'message-id': 'm1' },
}

const stream: ChangeStream = {
  id: 's1',
  name: 'order changes',
  reduce: 'last_by_key',
  transport: 'http',
  collections: ['orders', 'returns'],
  state: 'failing',
  complete: 1772366400000,
  updates: 20,
  waiting: 1234,
  failures: ['The collection \'orders\' cannot be read: gone.'],
  reported_at: '2026-03-01T12:00:00Z',
}

function show(path: string, { role = 'editor', all = [listed], streams = [] as ChangeStream[], one = detail, documents = [document] } = {}) {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity, retry: false } } })
  client.setQueryData(['me'], { username: 'ana', workspaces: [{ slug: 'main', name: 'Main', role }] })
  client.setQueryData(['collections', 'list'], { pages: [{ results: all, next: null }], pageParams: [''] })
  client.setQueryData(['change-streams'], { pages: [{ results: streams, next: null }], pageParams: [''] })
  client.setQueryData(['collections', 'one', 'c1'], one)
  client.setQueryData(['collections', 'documents', 'c1', {}], { pages: [{ results: documents, before: null }], pageParams: [null] })
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={client}>
        <PreferencesProvider>
          <MemoryRouter initialEntries={[path]}>
            <Routes>
              <Route path="/collections" element={<CollectionsPage />} />
              <Route path="/collections/:id" element={<CollectionPage />} />
            </Routes>
          </MemoryRouter>
        </PreferencesProvider>
      </QueryClientProvider>
    </MantineProvider>,
  )
}

test('the list shows what each collection holds, and why one cannot be read', () => {
  show('/collections', { all: [listed, { ...listed, id: 'c2', name: 'lost', documents: 0, unavailable: 'The disk is not mounted.' }] })
  expect(screen.getByText('1,500')).toBeTruthy()
  expect(screen.getByText(/The disk is not mounted/)).toBeTruthy()
})

test('change streams are shown with how far they have come, and why one cannot be sent', () => {
  show('/collections', { streams: [stream] })
  expect(screen.getByText('Failing')).toBeTruthy()
  expect(screen.getByText('1,234')).toBeTruthy()
  expect(screen.getByText('orders, returns')).toBeTruthy()
  expect(screen.getByText(/cannot be read: gone/)).toBeTruthy()
})

test('an empty list says what will be here, and a viewer makes none', () => {
  show('/collections', { role: 'viewer', all: [] })
  expect(screen.getByText('No collections yet')).toBeTruthy()
  expect(screen.queryByText('New collection')).toBeNull()
  expect(screen.queryByText('Change streams')).toBeNull()
})

test('one collection is shown with its partitions, configuration and documents', () => {
  show('/collections/c1')
  expect(screen.getByText('1,510')).toBeTruthy()
  expect(screen.getByText('for 24 hours')).toBeTruthy()
  expect(screen.getByText('a flag in the value')).toBeTruthy()
  expect(screen.getByText('/var/collections/w1/c1')).toBeTruthy()
  expect(screen.getByText('{"id":7}')).toBeTruthy()
  fireEvent.click(screen.getByText('1,509'))
  expect(screen.getByText('message-id')).toBeTruthy()
})

test('it is reset only once its name is typed', () => {
  show('/collections/c1')
  fireEvent.click(screen.getByText('Reset'))
  const confirm = () => screen.getAllByText('Reset').at(-1)?.closest('button') as HTMLButtonElement
  expect(confirm().disabled).toBe(true)
  fireEvent.change(screen.getByLabelText('Type orders to confirm'), { target: { value: 'orders' } })
  expect(confirm().disabled).toBe(false)
})

test('a viewer cannot reset it, nor anybody one that cannot be read', () => {
  show('/collections/c1', { role: 'viewer' })
  expect(screen.queryByText('Reset')).toBeNull()
  cleanup()
  show('/collections/c1', { one: { ...detail, partition_states: [], unavailable: 'The disk is not mounted.' } })
  expect(screen.getByText('The disk is not mounted.')).toBeTruthy()
  expect(screen.queryByText('Reset')).toBeNull()
  expect(screen.queryByText('No documents in this partition')).toBeNull()
})
