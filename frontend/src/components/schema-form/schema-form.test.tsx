import { MantineProvider } from '@mantine/core'
import { cleanup, fireEvent, render, screen, within } from '@testing-library/react'
import { useState } from 'react'
import { afterEach, expect, test, vi } from 'vitest'

import '@/lib/i18n'

import { errorSchema, SchemaForm, type FormData } from './schema-form'

const schema = {
  type: 'object',
  properties: {
    url: { type: 'string', title: 'Address' },
    token: { type: 'string', title: 'Token', format: 'password', writeOnly: true },
    value: { title: 'Value' },
    secrets: { type: 'object', title: 'Secrets', additionalProperties: { type: 'string', format: 'password', writeOnly: true } },
    profile: { type: 'object', title: 'Profile', properties: { file: { type: 'string', title: 'File' } } },
    rows: {
      type: 'array',
      title: 'Rows',
      items: { type: 'object', properties: { name: { type: 'string', title: 'Row' } } },
    },
    patience: { type: 'number', title: 'Patience', default: 3, advanced: true },
    input: {
      title: 'Input',
      description: 'Where messages come from.',
      oneOf: [
        { type: 'object', title: 'Poll', description: 'Asks a system.', properties: { type: { const: 'poll' } } },
        {
          type: 'object',
          title: 'Push',
          description: 'Is told.',
          properties: { type: { const: 'push' }, limit: { type: 'number', title: 'Limit', advanced: true } },
        },
      ],
    },
  },
} as never

afterEach(cleanup)

function Harness({ start, seen, errors = {} }: { start: FormData; seen: (value: FormData) => void; errors?: Record<string, string[]> }) {
  const [value, setValue] = useState(start)
  return (
    <MantineProvider env="test">
      <SchemaForm
        id="form"
        schema={schema}
        value={value}
        onChange={(next) => {
          setValue(next)
          seen(next)
        }}
        onSubmit={vi.fn()}
        errors={errors}
      />
    </MantineProvider>
  )
}

test('server errors are nested the way the form library reads them', () => {
  expect(errorSchema({ 'outputs.0.name': ['Too long.'] })).toEqual({ outputs: { 0: { name: { __errors: ['Too long.'] } } } })
})

test('an error is shown at its field', () => {
  render(<Harness start={{}} seen={vi.fn()} errors={{ url: ['Not an address.'] }} />)
  const field = screen.getByRole('textbox', { name: 'Address' })
  expect(field.getAttribute('aria-invalid')).toBe('true')
  expect(document.getElementById(field.getAttribute('aria-describedby') ?? '')?.textContent).toBe('Not an address.')
})

test('advanced fields are folded, unless one has to be corrected', () => {
  const folded = () => screen.getByRole('button', { name: 'Advanced' }).getAttribute('aria-expanded')
  const { unmount } = render(<Harness start={{}} seen={vi.fn()} />)
  expect(folded()).toBe('false')
  fireEvent.click(screen.getByRole('button', { name: 'Advanced' }))
  expect(folded()).toBe('true')
  unmount()
  render(<Harness start={{}} seen={vi.fn()} errors={{ patience: ['Too long.'] }} />)
  expect(folded()).toBe('true')
})

test('a stored secret is never shown, and can be replaced', () => {
  const seen = vi.fn()
  render(<Harness start={{ token: '********' }} seen={seen} />)
  expect(document.body.innerHTML).not.toContain('********')
  fireEvent.click(screen.getByRole('button', { name: 'Replace' }))
  expect(seen).toHaveBeenLastCalledWith(expect.objectContaining({ token: '' }))
})

test.each(['profile', 'rows', 'input'])('an error of the part %s is shown once, within it', (part) => {
  render(<Harness start={{ input: { type: 'push' } }} seen={vi.fn()} errors={{ [part]: ['Does not fit.'] }} />)
  const shown = screen.getAllByText('Does not fit.').filter((element) => !element.closest(`#form_${part}__error`))
  expect(shown).toHaveLength(1)
})

test('the error of a stored secret is shown at its field', () => {
  render(<Harness start={{ token: '********' }} seen={vi.fn()} errors={{ token: ['Refused by the server.'] }} />)
  expect(document.getElementById('form_token')?.textContent).toContain('Refused by the server.')
})

test('a value of any type is edited as JSON', () => {
  const seen = vi.fn()
  render(<Harness start={{ value: ['BR'] }} seen={seen} />)
  const input = screen.getByLabelText('Value')
  expect((input as HTMLTextAreaElement).value).toBe('["BR"]')
  fireEvent.change(input, { target: { value: '{"a": 1}' } })
  expect(seen).toHaveBeenLastCalledWith(expect.objectContaining({ value: { a: 1 } }))
  fireEvent.change(input, { target: { value: '{"a":' } })
  expect(screen.getByText(/Not valid JSON/)).toBeTruthy()
})

test('advanced fields are folded', () => {
  render(<Harness start={{}} seen={vi.fn()} />)
  expect(screen.getByRole('button', { name: 'Advanced' }).getAttribute('aria-expanded')).toBe('false')
})

test('advanced fields of a part are told from those of the whole', () => {
  render(<Harness start={{ input: { type: 'push' } }} seen={vi.fn()} />)
  expect(screen.getByRole('button', { name: 'Advanced: Push' })).toBeTruthy()
  expect(screen.getByRole('button', { name: 'Advanced' })).toBeTruthy()
})

test('a named secret is added empty, and never with a made-up value', () => {
  const seen = vi.fn()
  render(<Harness start={{}} seen={seen} />)
  fireEvent.click(within(document.getElementById('form_secrets')!).getByRole('button', { name: 'Add' }))
  const added = Object.values((seen.mock.lastCall![0] as { secrets: Record<string, string> }).secrets)
  expect(added).toEqual([''])
})

test('a chosen variant shows its own description, and the selection that of the field', () => {
  render(<Harness start={{ input: { type: 'push' } }} seen={vi.fn()} />)
  expect(screen.getAllByText('Where messages come from.')).toHaveLength(1)
  expect(screen.getByText('Is told.')).toBeTruthy()
})
