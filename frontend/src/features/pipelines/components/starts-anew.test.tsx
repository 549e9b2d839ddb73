import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { act, cleanup, fireEvent, render, screen } from '@testing-library/react'
import type { ReactNode } from 'react'
import { afterEach, expect, test } from 'vitest'

import type { InputChange } from '@/features/pipelines/api/pipelines'
import type { components } from '@/lib/api/schema'
import { chooseLanguage } from '@/lib/i18n'
import type { Pipeline } from '@/lib/queries/pipelines'

import { RollBackButton } from './pipeline-versions'
import { PublishDialog } from './publish-dialog'

afterEach(async () => {
  cleanup()
  await chooseLanguage('en')
})

const pipeline = { id: 'p1', name: 'Orders', version: 3, published_version: 2 } as Pipeline
const version = { number: 1 } as components['schemas']['Version']
const goesOn: InputChange = { starts_anew: false, causes: [], ends: false }
const ends: InputChange = { ...goesOn, ends: true }
const startsAnew: InputChange = {
  ...goesOn,
  starts_anew: true,
  causes: [
    { path: 'input.options.source.table', title: 'Table' },
    { path: 'input.options.key', title: 'Key' },
  ],
}
const because = /^Table and Key have changed, so the input is read as if nothing had been read yet\./

/** With what the server has answered; nothing is asked again. */
function show(change: InputChange, number: number, children: ReactNode): QueryClient {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity, retry: false } } })
  client.setQueryData(['pipelines', 'p1', 'changes', 3, 2], [])
  client.setQueryData(['pipelines', 'p1', 'input-change', number], change)
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={client}>{children}</QueryClientProvider>
    </MantineProvider>,
  )
  return client
}

const dialog = <PublishDialog pipeline={pipeline} opened onClose={() => undefined} />

test('before a version is published it is said that its input starts anew, and which fields make it', () => {
  show(startsAnew, 3, dialog)
  expect(screen.getByText('Reading starts anew')).toBeTruthy()
  expect(screen.getByText(because)).toBeTruthy()
})

test('that is said above the changes, which may be many', () => {
  show(startsAnew, 3, dialog)
  const changes = screen.getByText(/^What changes compared with/)
  expect(screen.getByText(because).compareDocumentPosition(changes)).toBe(Node.DOCUMENT_POSITION_FOLLOWING)
})

test('one field is named in the singular', () => {
  show({ ...goesOn, starts_anew: true, causes: [{ path: 'input.connector', title: 'Connector' }] }, 3, dialog)
  expect(screen.getByText(/^Connector has changed, so/)).toBeTruthy()
})

test('nothing is said of an input that goes on', () => {
  show(goesOn, 3, dialog)
  expect(screen.getByText('Publish')).toBeTruthy()
  expect(screen.queryByText('Reading starts anew')).toBeNull()
})

test('it is said that an input which is replaced by another kind is not read any more', () => {
  show(ends, 3, dialog)
  expect(screen.getByText('Reading ends')).toBeTruthy()
  expect(screen.getByText(/the position in it is given up/)).toBeTruthy()
  expect(screen.queryByText('Reading starts anew')).toBeNull()
})

test('rolling back to a version that reads nothing is confirmed first', async () => {
  const client = show(ends, 1, <RollBackButton pipeline={pipeline} version={version} />)
  fireEvent.click(screen.getByRole('button', { name: 'Roll back' }))
  expect(await screen.findByText('Reading ends')).toBeTruthy()
  expect(client.getMutationCache().getAll().length).toBe(0)
})

test('the fields are named in the reader\u2019s language', async () => {
  await chooseLanguage('pt-BR')
  show(startsAnew, 3, dialog)
  expect(await screen.findByText(/^Tabela e Chave mudaram; por isso, a entrada é lida/)).toBeTruthy()
})

test('rolling back to a version whose input starts anew is confirmed first', async () => {
  const client = show(startsAnew, 1, <RollBackButton pipeline={pipeline} version={version} />)
  const published = () => client.getMutationCache().getAll().length
  fireEvent.click(screen.getByRole('button', { name: 'Roll back' }))
  expect(await screen.findByText(because)).toBeTruthy()
  expect(published()).toBe(0)
  const [confirm] = screen.getAllByRole('button', { name: 'Roll back' }).slice(-1)
  await act(async () => {
    fireEvent.click(confirm as HTMLElement)
    await Promise.resolve()
  })
  expect(published()).toBe(1)
})

test('rolling back to a version whose input goes on asks nothing', async () => {
  const client = show(goesOn, 1, <RollBackButton pipeline={pipeline} version={version} />)
  await act(async () => {
    fireEvent.click(screen.getByRole('button', { name: 'Roll back' }))
    await Promise.resolve()
  })
  expect(client.getMutationCache().getAll().length).toBe(1)
  expect(screen.queryByText(because)).toBeNull()
})
