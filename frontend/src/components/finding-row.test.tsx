import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { act, cleanup, render, screen } from '@testing-library/react'
import { MemoryRouter } from 'react-router'
import { afterEach, expect, test } from 'vitest'

import { chooseLanguage } from '@/lib/i18n'
import type { Finding } from '@/lib/pipeline-status'
import { PreferencesProvider } from '@/lib/preferences'
import type { Role } from '@/lib/queries/session'

import { FindingRow } from './finding-row'

afterEach(async () => {
  cleanup()
  await chooseLanguage('en')
})

const blocked: Finding = {
  state: 'blocked',
  reason: 'Nothing is sent to erp: its circuit breaker is open.',
  place: 'erp',
  error: 'The receiver answered 503.',
  since: '2026-01-02T12:00:00Z',
  until: '2026-01-02T13:00:00Z',
  action: 'close_breaker',
}

function show(fields: Partial<Finding>, role: Role, address = '/') {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity, retry: false } } })
  client.setQueryData(['me'], { username: 'ana', workspaces: [{ slug: 'main', name: 'Main', role }] })
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={client}>
        <MemoryRouter initialEntries={[address]}>
          <PreferencesProvider>
            <FindingRow pipeline="p1" finding={{ ...blocked, ...fields }} />
          </PreferencesProvider>
        </MemoryRouter>
      </QueryClientProvider>
    </MantineProvider>,
  )
}

const target = (name: string) => screen.getByRole('link', { name }).getAttribute('href')

test('a trouble is told with the error behind it and the button that helps', () => {
  show({}, 'operator')
  expect(screen.getByText(blocked.reason, { exact: false })).toBeTruthy()
  expect(screen.getByText(blocked.error)).toBeTruthy()
  expect(screen.getByRole('timer').textContent).toContain('Next probe in')
  expect(screen.getByRole('button', { name: 'Close circuit breaker' })).toBeTruthy()
})

test('an idle pipeline says when its next file is complete', () => {
  show({ state: 'idle', reason: 'Messages wait for their file: 7.', action: 'open_exports' }, 'viewer')
  expect(screen.getByRole('timer').textContent).toContain('Next file in')
})

test('nobody is offered what their role may not do', () => {
  show({}, 'viewer')
  expect(screen.queryByRole('button', { name: 'Close circuit breaker' })).toBeNull()
  expect(target('Open')).toBe('/pipelines/p1/outputs')
  cleanup()
  show({ action: 'edit' }, 'operator')
  expect(target('Open')).toBe('/pipelines/p1')
})

test.each([
  ['edit', 'Edit', '/pipelines/p1/edit'],
  ['open_dead_letters', 'Review and redrive', '/dead-letters?pipeline=p1'],
  ['open_exports', 'Look at the files', '/exports?pipeline=p1'],
  ['open_jobs', 'Look at the jobs', '/jobs'],
  ['open_input', 'Open', '/pipelines/p1'],
  [null, 'Open', '/pipelines/p1'],
] as const)('%s leads to where that can be done', (action, label, to) => {
  show({ action }, 'admin')
  expect(target(label)).toBe(to)
})

test('no button leads to the page that is shown', () => {
  show({ action: 'open_input' }, 'admin', '/pipelines/p1')
  expect(screen.queryByRole('link')).toBeNull()
})

test('the reason is told in the language of the reader', async () => {
  await act(() => chooseLanguage('pt-BR'))
  show({}, 'operator')
  expect(screen.getByText('Nada é enviado a erp: seu circuit breaker está aberto.', { exact: false })).toBeTruthy()
})
