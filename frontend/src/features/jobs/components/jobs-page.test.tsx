import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen } from '@testing-library/react'
import { MemoryRouter } from 'react-router'
import { afterEach, expect, test } from 'vitest'

import '@/lib/i18n'
import { PreferencesProvider } from '@/lib/preferences'

import { JobsPage } from './jobs-page'

afterEach(cleanup)

const job = { name: 'data-plane', stages: [], desired: 'running', status: 'running', restarts: 0, last_error: '' }

function show(installationAdmin: boolean) {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity } } })
  client.setQueryData(['jobs'], [job])
  client.setQueryData(['me'], { username: 'ana', installation_admin: installationAdmin, workspaces: [] })
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={client}>
        <PreferencesProvider>
          <MemoryRouter>
            <JobsPage />
          </MemoryRouter>
        </PreferencesProvider>
      </QueryClientProvider>
    </MantineProvider>,
  )
}

test('an administrator of the installation stops a job and reads its log', () => {
  show(true)
  expect(screen.getByRole('button', { name: 'Stop' })).toBeTruthy()
  expect(screen.getByRole('button', { name: 'Log' })).toBeTruthy()
})

test('others read why they may not', () => {
  show(false)
  expect(screen.queryByRole('button')).toBeNull()
  expect(screen.getByText(/Only an administrator of the installation/)).toBeTruthy()
})
