import { expect, test } from 'vitest'

import { partPathOf, partsOf, placeOfChange, summaryOf, withAdded, withMoved, withoutPart, withPart } from './parts'
import { variantOf } from './part-schema'

const config = {
  input: { type: 'http' },
  transforms: [{ type: 'rename', path: 'user', to: 'customer' }, { type: 'remove', paths: ['a', 'b'] }],
  index: [{ name: 'country' }],
  stream_processing: null,
  outputs: [{ name: 'erp' }],
}

test('parts stand in the order in which messages meet them; what is not configured is no part', () => {
  expect(partsOf(config).map(({ path }) => path)).toEqual(['input', 'transforms.0', 'transforms.1', 'index', 'outputs.0'])
  expect(partsOf({}).map(({ path }) => path)).toEqual(['input'])
})

test('what another release or a plugin stored is shown as far as it is known', () => {
  const stored = { input: 'nobody', transforms: [{ type: 'of_a_plugin', path: 'a' }], outputs: 'nonsense' } as never
  const [, step, ...others] = partsOf(stored)
  expect([step?.path, others]).toEqual(['transforms.0', []])
  const schema = { properties: { transforms: { items: { discriminator: { mapping: { set: '#/$defs/Set' } } } } } } as never
  expect(variantOf(schema, 'transforms.0', { type: 'of_a_plugin' })).toBeUndefined()
  expect(withoutPart(stored, 'transforms.0').transforms).toEqual([])
})

test('a problem leads to the part that it is about', () => {
  expect(partPathOf('transforms.12.to')).toBe('transforms.12')
  expect(partPathOf('input')).toBe('input')
  expect(partPathOf('outputs')).toBeUndefined()
  expect(partPathOf('indexes.0')).toBeUndefined()
})

test('a change leads to its field, also where it calls elements by their names', () => {
  expect(placeOfChange('outputs.erp.name', config)).toBe('outputs.0.name')
  expect(placeOfChange('transforms.0.to', config)).toBe('transforms.0.to')
  expect(placeOfChange('index.country', config)).toBe('index.0')
  expect(placeOfChange('outputs.erp.options', config)).toBeUndefined()
  const dotted = { outputs: [{ name: 'crm' }, { name: 'crm.eu', connector: 'c' }] }
  expect(placeOfChange('outputs.crm.eu.connector', dotted)).toBe('outputs.1.connector')
  expect(placeOfChange('outputs.crm', { outputs: null })).toBeUndefined()
  const repeated = { transforms: [{ name: 'a' }, { name: 'a', to: 'b' }] }
  expect(placeOfChange('transforms.1.to', repeated)).toBe('transforms.1.to')
})

test('parts are changed, added, moved and removed without touching the others', () => {
  expect(withPart(config, 'outputs.0', { name: 'crm' }).outputs).toEqual([{ name: 'crm' }])
  expect(withPart(config, 'input', { type: 'filter' }).input).toEqual({ type: 'filter' })
  expect(withPart(config, 'index', { index: [] }).index).toEqual([])
  const added = withAdded(config, 'outputs', {})
  expect([added.path, added.config.outputs]).toEqual(['outputs.1', [{ name: 'erp' }, {}]])
  expect((withMoved(config, 1, 0).transforms as { type: string }[]).map(({ type }) => type)).toEqual(['remove', 'rename'])
  expect(withoutPart(config, 'transforms.0').transforms).toEqual([config.transforms[1]])
  expect(withoutPart(config, 'index').index).toEqual([])
  expect(config.transforms).toHaveLength(2)
})

test.each([
  [{ path: 'user', to: 'customer' }, 'user → customer'],
  [{ paths: ['a', 'b'] }, 'a, b'],
  [{ path: 'source', value: 'web' }, 'source = "web"'],
  [{ path: 'n', condition: 'less_than', value: 900 }, 'n less than 900'],
  [{ expression: 'a + 1', to: 'b' }, 'a + 1 → b'],
  [{}, ''],
])('%o is said in a line', (step, line) => {
  expect(summaryOf(step)).toBe(line)
})
