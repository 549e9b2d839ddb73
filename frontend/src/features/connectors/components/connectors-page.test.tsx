import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { MemoryRouter } from 'react-router'
import { afterEach, expect, test } from 'vitest'

import '@/lib/i18n'
import { PreferencesProvider } from '@/lib/preferences'
import { connectorKeys } from '@/lib/queries/connectors'

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

function show(connectors: object[], types: object[]) {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity } } })
  client.setQueryData(connectorKeys.all, connectors)
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

test('a type that is unavailable cannot be chosen and says why', () => {
  show([], [type('http', ''), type('sap', 'The package pyrfc is not installed.')])
  fireEvent.click(screen.getAllByRole('button', { name: 'New connector' })[0] as Element)
  expect(screen.getByRole('button', { name: /^http system/ }).hasAttribute('disabled')).toBe(false)
  const unavailable = screen.getByRole('button', { name: /^sap system/ })
  expect(unavailable.hasAttribute('disabled')).toBe(true)
  expect(unavailable.textContent).toContain('The package pyrfc is not installed.')
})
