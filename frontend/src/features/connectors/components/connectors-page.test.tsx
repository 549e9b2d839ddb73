import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { MemoryRouter } from 'react-router'
import { afterEach, expect, test } from 'vitest'

import '@/lib/i18n'
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

test('a type that is unavailable cannot be chosen and says why', () => {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity } } })
  client.setQueryData(connectorKeys.all, [])
  client.setQueryData(connectorKeys.types, [type('http', ''), type('sap', 'The package pyrfc is not installed.')])
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={client}>
        <MemoryRouter>
          <ConnectorsPage />
        </MemoryRouter>
      </QueryClientProvider>
    </MantineProvider>,
  )
  fireEvent.click(screen.getAllByRole('button', { name: 'New connector' })[0] as Element)
  expect(screen.getByRole('menuitem', { name: 'http system' }).getAttribute('href')).toBe('/connectors/new/http')
  const unavailable = screen.getByRole('menuitem', { name: /sap system/ })
  expect(unavailable.hasAttribute('disabled')).toBe(true)
  expect(unavailable.textContent).toContain('The package pyrfc is not installed.')
})
