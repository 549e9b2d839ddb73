import { expect, test } from 'vitest'

import { isVariant, prepareSchema, uiSchemaOf } from './prepare-schema'

test('a value or null becomes an optional value', () => {
  const schema = { properties: { key: { anyOf: [{ type: 'string' }, { type: 'null' }], default: null, title: 'Key' } } }
  expect(prepareSchema(schema as never)).toEqual({ properties: { key: { type: 'string', title: 'Key' } } })
})

test('a group of fields or null is not set until it is chosen', () => {
  const schema = { anyOf: [{ $ref: '#/$defs/Limit' }, { type: 'null' }], default: null }
  expect(prepareSchema(schema as never)).toEqual({
    anyOf: [{ type: 'null', title: 'Not set' }, { $ref: '#/$defs/Limit' }],
    default: null,
  })
})

test('a choice between two real types stays a choice', () => {
  const schema = { anyOf: [{ type: 'string' }, { type: 'number' }] }
  expect(prepareSchema(schema as never)).toEqual(schema)
})

test('constants are hidden and values of any type are edited as JSON', () => {
  const schema = { properties: { type: { const: 'set' }, value: { title: 'Value' }, path: { type: 'string' } } }
  expect(uiSchemaOf(schema as never)).toEqual({
    type: { 'ui:widget': 'hidden' },
    value: { 'ui:field': 'JsonField' },
  })
  expect(isVariant(schema as never)).toBe(true)
  expect(isVariant({ properties: { path: { type: 'string' } } })).toBe(false)
})
