import { expect, test } from 'vitest'

import { connectorUseIn, optionsDefinition, withForms, withMode } from './connector-use'
import type { FormContext } from './context'

const context = {
  types: [
    { type: 'all', capabilities: { deliver: {}, deliver_batch: {}, export: {} } },
    { type: 'store', capabilities: { export: {} } },
    { type: 'sender', capabilities: { deliver_batch: {} } },
    { type: 'table', capabilities: { read_batch: {}, read_stream: {} } },
    { type: 'queue', capabilities: { read_stream: {} } },
  ],
  connectors: ['all', 'store', 'sender', 'table', 'queue'].map((type) => ({ id: type, type })),
} as unknown as FormContext

const use = { connector: 'connector', options: 'options', capabilities: ['deliver', 'deliver_batch', 'export'] }
const chosen = (connector: string, more: object = {}) => optionsDefinition(context, use, { connector, ...more })

test('an output with files uses the capability to store them, as the server does', () => {
  expect(chosen('all', { files: {} })).toBe('all.export.options')
  expect(chosen('all', { batch: {} })).toBe('all.deliver_batch.options')
  expect(chosen('all')).toBe('all.deliver.options')
  expect(chosen('store')).toBe('store.export.options')
  expect(chosen('sender')).toBe('sender.deliver_batch.options')
})

const inputSchema = {
  properties: {
    connector: { type: 'string', format: 'connector', capabilities: ['read_batch', 'read_stream'] },
    options: { type: 'object', format: 'connector-options' },
    mode: { enum: ['batch', 'stream'], reads_by: { batch: 'read_batch', stream: 'read_stream' } },
  },
} as never
const input = connectorUseIn(inputSchema) as NonNullable<ReturnType<typeof connectorUseIn>>
const read = (connector: string, mode?: string) => optionsDefinition(context, input, { connector, mode })
const asked = (connector?: string, mode?: string) =>
  'mode' in (withMode(inputSchema, input, context, { connector, mode }).properties ?? {})

test('an input is read by the capability of its mode, and in batches where it says nothing, as the server does', () => {
  expect(read('table')).toBe('table.read_batch.options')
  expect(read('table', 'batch')).toBe('table.read_batch.options')
  expect(read('table', 'stream')).toBe('table.read_stream.options')
  expect(read('queue')).toBe('queue.read_stream.options')
  expect(read('queue', 'batch')).toBeUndefined()
})

test('the mode is asked for where the connector leaves a choice, and shown where one was made', () => {
  expect(asked()).toBe(false)
  expect(asked('queue')).toBe(false)
  expect(asked('table')).toBe(true)
  expect(asked('queue', 'batch')).toBe(true)
})

test('files and batches are asked for where the connector takes them, and shown where they were set', () => {
  const output = { properties: { name: {}, files: {}, batch: {} } } as never
  const fields = (connector?: string, more: object = {}) =>
    Object.keys(withForms(output, use, context, { connector, ...more }).properties ?? {})
  expect(fields()).toEqual(['name', 'files', 'batch'])
  expect(fields('all')).toEqual(['name', 'files', 'batch'])
  expect(fields('store')).toEqual(['name', 'files'])
  expect(fields('sender')).toEqual(['name', 'batch'])
  expect(fields('sender', { files: {} })).toEqual(['name', 'files', 'batch'])
})
