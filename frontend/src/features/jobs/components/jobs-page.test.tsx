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

function show(installationAdmin: boolean, stages: unknown[] = []) {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity } } })
  client.setQueryData(['jobs'], [{ ...job, stages }])
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

test('each stage says what it does and why', () => {
  show(false, [
    { name: 'adapting', state: 'running', demand: 'always', pipelines: 3, slots: 2 },
    { name: 'filtering', state: 'running', demand: 'pipelines', pipelines: 3, slots: 1 },
    { name: 'exporter', state: 'resting', demand: 'none', pipelines: 0, slots: 0 },
    { name: 'collections', state: 'stopped', demand: 'unknown', pipelines: 0, slots: 0 },
  ])
  expect(screen.getByText('Always.')).toBeTruthy()
  expect(screen.getByText('3 published pipelines need it.')).toBeTruthy()
  expect(screen.getByText('Resting')).toBeTruthy()
  expect(screen.getByText('No published pipeline needs it.')).toBeTruthy()
  expect(screen.getByText('Stopped')).toBeTruthy()
  expect(screen.queryByText('What is needed is not known yet.')).toBeNull()
})
