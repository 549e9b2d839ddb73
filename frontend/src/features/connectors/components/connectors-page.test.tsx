import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { MemoryRouter } from 'react-router'
import { afterEach, expect, test } from 'vitest'

import '@/lib/i18n'
import { PreferencesProvider } from '@/lib/preferences'
import { connectorKeys } from '@/lib/queries/connectors'
import type { Role } from '@/lib/queries/session'

import { ConnectorsPage } from './connectors-page'

afterEach(cleanup)

const type = (name: string, unavailable: string) => ({
  type: name,
  title: `${name} system`,
  description: '',
  unavailable,
  connection_schema: {},
  capabilities: {},
})

const connector = (name: string, failure: string) => ({ id: name, name, type: 'http', failure, updated_at: '2026-01-31T00:00:00Z' })

function show(connectors: object[], types: object[], activity: { connector: string }[] = [], role: Role = 'editor') {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity } } })
  client.setQueryData(['me'], { username: 'ana', workspaces: [{ slug: 'main', name: 'Main', role }] })
  client.setQueryData(connectorKeys.list(''), { rows: connectors, count: connectors.length, hasMore: false })
  client.setQueryData([...connectorKeys.all, 'activity'], new Map(activity.map((one) => [one.connector, one])))
  client.setQueryData(connectorKeys.types, types)
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={client}>
        <PreferencesProvider>
          <MemoryRouter>
            <ConnectorsPage />
          </MemoryRouter>
        </PreferencesProvider>
      </QueryClientProvider>
    </MantineProvider>,
  )
}

test('a connector that cannot be used says why', () => {
  show([connector('erp', ''), connector('crm', 'The Python package pyrfc is not installed on this server.')], [type('http', '')])
  const row = (name: string) => screen.getByRole('link', { name }).closest('tr')?.textContent
  expect(row('crm')).toContain('The Python package pyrfc is not installed on this server.')
  expect(row('erp')).not.toContain('not installed')
})

test('a connector says how many pipelines use it and what failed last', () => {
  const last_error = { at: '2026-01-31T00:00:00Z', stage: 'output crm', reason: 'http_422', message: 'The receiver answered 422.', message_id: '1' }
  const used = { connector: 'crm', pipelines: 12, last_error }
  show([connector('crm', ''), connector('erp', '')], [type('http', '')], [used])
  const cell = (name: string, title: string) => screen.getByRole('link', { name }).closest('tr')?.querySelector(`[data-title="${title}"]`)?.textContent
  expect([cell('crm', 'Pipelines'), cell('erp', 'Pipelines')]).toEqual(['12', '0'])
  expect(cell('crm', 'Last error')).toContain('The receiver answered 422.')
  expect(cell('erp', 'Last error')).toBe('')
})

test('a type that is unavailable cannot be chosen and says why', () => {
  show([], [type('http', ''), type('sap', 'The package pyrfc is not installed.')])
  fireEvent.click(screen.getAllByRole('button', { name: 'New connector' })[0] as Element)
  expect(screen.getByRole('button', { name: /^http system/ }).hasAttribute('disabled')).toBe(false)
  const unavailable = screen.getByRole('button', { name: /^sap system/ })
  expect(unavailable.hasAttribute('disabled')).toBe(true)
  expect(unavailable.textContent).toContain('The package pyrfc is not installed.')
})

test('only who may change connectors is offered to', () => {
  const offered = () => screen.queryAllByRole('button', { name: /^(New connector|Delete)$/ }).length
  show([connector('crm', '')], [type('http', '')])
  expect(offered()).toBe(2)
  cleanup()
  show([connector('crm', '')], [type('http', '')], [], 'operator')
  expect(offered()).toBe(0)
})
