import { MantineProvider } from '@mantine/core'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { useState } from 'react'
import { afterEach, expect, test, vi } from 'vitest'

import { chooseLanguage } from '@/lib/i18n'

import type { FormContext } from './context'
import { SchemaForm, type FormData } from './schema-form'

/** As the server marks it: here a connector is used, for any of these capabilities, with its options beside it. */
const marked = (capabilities: string[]) => ({
  connector: { type: 'string', format: 'connector', title: 'Connector', capabilities },
  options: { type: 'object', format: 'connector-options', title: 'Options', additionalProperties: true },
})

const schema = {
  type: 'object',
  $defs: {
    Output: {
      type: 'object',
      title: 'Output',
      additionalProperties: false,
      properties: {
        name: { type: 'string', title: 'Name' },
        ...marked(['deliver', 'deliver_batch']),
        batch: { title: 'Batch', anyOf: [{ $ref: '#/$defs/Batch' }, { type: 'null' }], default: null },
      },
    },
    Batch: { type: 'object', title: 'Batch', properties: { count: { type: 'integer', title: 'Count', default: 500 } } },
    Verification: {
      type: 'object',
      title: 'Verification',
      additionalProperties: false,
      required: ['connector'],
      properties: marked(['verify']),
    },
    // A definition of the same name that a connector's options have too.
    Header: { type: 'object', title: 'Header', properties: {} },
  },
  properties: {
    output: { $ref: '#/$defs/Output' },
    verification: { title: 'Verification', anyOf: [{ $ref: '#/$defs/Verification' }, { type: 'null' }], default: null },
  },
} as never

const options = (title: string, extra: object = {}) => ({
  options_schema: {
    type: 'object',
    properties: { path: { type: 'string', title }, ...extra },
    additionalProperties: false,
  },
})

const type = (name: string, capabilities: object) =>
  ({ type: name, title: `${name} system`, description: '', unavailable: '', connection_schema: {}, capabilities }) as never

const context: FormContext = {
  types: [
    type('http', {
      deliver: {
        options_schema: {
          type: 'object',
          $defs: { Header: { type: 'object', properties: { value: { type: 'string', title: 'Header value' } } } },
          properties: { path: { type: 'string', title: 'Path' }, header: { $ref: '#/$defs/Header' } },
        },
      },
      call: options('Call path'),
    }),
    type('both', { deliver: options('One at a time'), deliver_batch: options('Many at a time', { lines: { type: 'integer', title: 'Lines', default: 9 } }) }),
    type('files', { deliver_batch: options('Folder') }),
    type('webhook', { verify: { options_schema: { type: 'object', properties: {}, additionalProperties: false } } }),
  ],
  connectors: ['http', 'both', 'files', 'webhook'].map((name) => ({ id: `${name}-id`, name: `My ${name}`, type: name }) as never),
}

afterEach(cleanup)

function Harness({ start, onValue = vi.fn() }: { start: FormData; onValue?: (value: FormData) => void }) {
  const [value, setValue] = useState(start)
  return (
    <MantineProvider env="test">
      <SchemaForm
        id="form"
        schema={schema}
        context={context}
        value={value}
        onChange={(next) => {
          setValue(next)
          onValue(next)
        }}
        onSubmit={vi.fn()}
        errors={{}}
      />
    </MantineProvider>
  )
}

function offered(field: string): string[] {
  fireEvent.click(document.querySelector(`#${field}`) as Element)
  const list = document.getElementById(document.querySelector(`#${field}`)?.getAttribute('aria-controls') ?? '')
  return [...(list?.querySelectorAll('[role=option]') ?? [])].map((option) => option.textContent)
}

test('only connectors whose type has one of the capabilities are offered', () => {
  render(<Harness start={{}} />)
  expect(offered('form_output_connector')).toEqual(['My http (http system)', 'My both (both system)', 'My files (files system)'])
})

test('a place that needs no connector asks for one once it is wanted', () => {
  const onValue = vi.fn()
  render(<Harness start={{ verification: null }} onValue={onValue} />)
  expect(document.querySelector('#form_verification_connector')).toBeNull()
  expect(offered('form_verification__anyof_select')).toEqual(['Not set', 'Verification'])
  fireEvent.click(screen.getByRole('option', { name: 'Verification' }))
  expect(offered('form_verification_connector')).toEqual(['My webhook (webhook system)'])
  fireEvent.click(screen.getByRole('option', { name: 'My webhook (webhook system)' }))
  expect(onValue).toHaveBeenLastCalledWith(expect.objectContaining({ verification: { connector: 'webhook-id', options: {} } }))
})

test('before a connector is chosen there are no options', () => {
  render(<Harness start={{}} />)
  expect(document.querySelector('[id^=form_output_options]')).toBeNull()
})

test('the options are those of the chosen type, with definitions of their own', () => {
  render(<Harness start={{ output: { connector: 'http-id', options: { path: '/a' } } }} />)
  expect(screen.getByLabelText<HTMLInputElement>('Path').value).toBe('/a')
  expect(screen.getByLabelText('Header value')).toBeTruthy()
})

test('of a pair of capabilities the one for batches is used where a batch is set', () => {
  const { rerender } = render(<Harness key="one" start={{ output: { connector: 'both-id' } }} />)
  expect(screen.getByLabelText('One at a time')).toBeTruthy()
  rerender(<Harness key="many" start={{ output: { connector: 'both-id', batch: { count: 3 } } }} />)
  expect(screen.getByLabelText('Many at a time')).toBeTruthy()
  expect(screen.getByLabelText<HTMLInputElement>('Lines').value).toBe('9')
})

test('a capability without options shows none', () => {
  render(<Harness start={{ verification: { connector: 'webhook-id' } }} />)
  expect(screen.queryByText('Options')).toBeNull()
})

test('a type with one of the capabilities uses that one', () => {
  render(<Harness start={{ output: { connector: 'files-id' } }} />)
  expect(screen.getByLabelText('Folder')).toBeTruthy()
})

test('another connector keeps the options that its type knows too', () => {
  const onValue = vi.fn()
  const start = { output: { connector: 'http-id', options: { path: '/a', header: { value: 'x' } } } }
  render(<Harness start={start} onValue={onValue} />)
  offered('form_output_connector')
  fireEvent.click(screen.getByRole('option', { name: 'My files (files system)' }))
  const output = (onValue.mock.lastCall![0] as { output: FormData }).output
  expect(output).toMatchObject({ connector: 'files-id', options: { path: '/a' } })
  expect(output.options).not.toHaveProperty('header')
})

test('what was typed before a connector is chosen stays', () => {
  const onValue = vi.fn()
  render(<Harness start={{ output: {} }} onValue={onValue} />)
  fireEvent.change(screen.getByLabelText('Name'), { target: { value: 'erp' } })
  offered('form_output_connector')
  fireEvent.click(screen.getByRole('option', { name: 'My files (files system)' }))
  expect(onValue).toHaveBeenLastCalledWith({ output: expect.objectContaining({ name: 'erp', connector: 'files-id' }) as unknown, verification: null })
})

test('what is typed into options reaches the value', () => {
  const onValue = vi.fn()
  render(<Harness start={{ output: { connector: 'files-id' } }} onValue={onValue} />)
  fireEvent.change(screen.getByLabelText('Folder'), { target: { value: '/b' } })
  expect(onValue).toHaveBeenLastCalledWith(expect.objectContaining({ output: expect.objectContaining({ options: { path: '/b' } }) as unknown }))
})

test('a connector that is gone is still named', () => {
  render(<Harness start={{ output: { connector: 'gone' } }} />)
  expect((document.querySelector('#form_output_connector') as HTMLInputElement).value).toBe('gone (deleted or not suitable here)')
})

test('the form speaks the chosen language', async () => {
  await chooseLanguage('pt-BR')
  render(<Harness start={{ output: { connector: 'http-id' } }} />)
  expect(screen.getByLabelText('Caminho')).toBeTruthy()
  await chooseLanguage('en')
})
