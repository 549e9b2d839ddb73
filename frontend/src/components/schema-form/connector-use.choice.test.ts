import { expect, test } from 'vitest'

import { optionsDefinition } from './connector-use'
import type { FormContext } from './context'

const context = {
  types: [
    { type: 'all', capabilities: { deliver: {}, deliver_batch: {}, export: {} } },
    { type: 'store', capabilities: { export: {} } },
    { type: 'sender', capabilities: { deliver_batch: {} } },
  ],
  connectors: ['all', 'store', 'sender'].map((type) => ({ id: type, type })),
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
