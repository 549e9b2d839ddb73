import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { useState } from 'react'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'

import '@/lib/i18n'
import { PreferencesProvider } from '@/lib/preferences'

import { useDraft } from './draft'

const schema = { properties: { password: { type: 'string', writeOnly: true } } } as never

beforeEach(() => localStorage.clear())
afterEach(() => {
  cleanup()
  vi.restoreAllMocks()
})

interface Value {
  name: string
  password?: string
}

function Form({ base = 'v1', saved = '' }: { base?: string; saved?: string }) {
  const [value, setValue] = useState<Value>({ name: saved })
  const [isDirty, setDirty] = useState(false)
  const change = (changed: Value) => {
    setValue(changed)
    setDirty(true)
  }
  const { offer, isKept, restored, forget } = useDraft({ kind: 'thing', thing: '1', base, value, isDirty, schema, onRestore: change })
  return (
    <>
      {offer}
      <input aria-label="Name" value={value.name} onChange={(event) => change({ ...value, name: event.target.value })} />
      <input aria-label="Password" value={value.password ?? ''} onChange={(event) => change({ ...value, password: event.target.value })} />
      <button onClick={forget}>Save</button>
      <output>{`${isDirty ? 'changed' : 'same'} ${isKept ? 'kept' : 'unkept'} ${restored}`}</output>
    </>
  )
}

function open(given: { base?: string; saved?: string } = {}) {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity, retry: false } } })
  client.setQueryData(['me'], { username: 'ada', installation_admin: false, workspaces: [{ slug: 'default', name: 'Default', role: 'editor' }] })
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={client}>
        <PreferencesProvider>
          <Form {...given} />
        </PreferencesProvider>
      </QueryClientProvider>
    </MantineProvider>,
  )
}

const type = (label: string, text: string) => fireEvent.change(screen.getByLabelText(label), { target: { value: text } })
const field = (label: string) => screen.getByLabelText<HTMLInputElement>(label).value
const state = () => document.querySelector('output')?.textContent
const stored = () => JSON.stringify(Object.fromEntries(Object.entries(localStorage)))
const press = (name: string) => fireEvent.click(screen.getByRole('button', { name }))

test('what was typed and left comes back as unsaved changes, without secrets', () => {
  open()
  expect(state()).toBe('same unkept 0')
  type('Name', 'CRM')
  type('Password', 'hunter2')
  expect(state()).toBe('changed kept 0')
  cleanup()
  expect(stored()).toContain('CRM')
  expect(stored()).not.toContain('hunter2')
  open()
  expect(screen.getByText(/You left changes here on .* that were not saved\./)).toBeTruthy()
  expect(screen.getByText('Secrets that you typed were not kept; enter them again.')).toBeTruthy()
  expect(field('Name')).toBe('')
  press('Restore')
  expect([field('Name'), field('Password'), state()]).toEqual(['CRM', '', 'changed kept 1'])
  expect(screen.queryByRole('button', { name: 'Restore' })).toBeNull()
  cleanup()
  // They stay until they are saved, and the secret is still missing.
  open()
  expect(screen.getByText('Secrets that you typed were not kept; enter them again.')).toBeTruthy()
})

test('it is kept while one types, not only when one leaves', async () => {
  open()
  type('Name', 'CRM')
  await vi.waitFor(() => expect(stored()).toContain('CRM'), { timeout: 30_000 })
})

test('saved and discarded changes do not come back', () => {
  open()
  type('Name', 'CRM')
  press('Save')
  cleanup()
  expect(localStorage.length).toBe(0)
  open()
  type('Name', 'ERP')
  cleanup()
  open()
  press('Discard')
  expect(localStorage.length).toBe(0)
  expect(field('Name')).toBe('')
  cleanup()
  open()
  expect(screen.queryByRole('button', { name: 'Restore' })).toBeNull()
})

test('an offer that is not answered stays as it was, whatever is typed or saved', () => {
  open()
  type('Name', 'first')
  cleanup()
  open()
  type('Name', 'second')
  expect(state()).toBe('changed unkept 0')
  expect(screen.getByText('Restoring replaces what you have typed since.')).toBeTruthy()
  press('Save')
  cleanup()
  expect(stored()).toContain('first')
  expect(stored()).not.toContain('second')
  open()
  type('Name', 'third')
  press('Discard')
  cleanup()
  expect(stored()).toContain('third')
})

test('the offer says that the saved copy was changed meanwhile', () => {
  open({ base: 'v1' })
  type('Name', 'CRM')
  cleanup()
  open({ base: 'v1' })
  expect(screen.queryByText(/What is saved was changed since/)).toBeNull()
  cleanup()
  open({ base: 'v2' })
  expect(screen.getByText(/What is saved was changed since/)).toBeTruthy()
})

test('a full storage breaks no form, and nothing is said to be kept', async () => {
  vi.spyOn(Storage.prototype, 'setItem').mockImplementation(() => {
    throw new DOMException('full', 'QuotaExceededError')
  })
  open()
  type('Name', 'CRM')
  await vi.waitFor(() => expect(state()).toBe('changed unkept 0'), { timeout: 30_000 })
  expect(field('Name')).toBe('CRM')
})
