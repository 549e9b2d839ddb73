import { expect, test } from 'vitest'

import { isVariant, prepareSchema, uiSchemaOf } from './prepare-schema'

test('a value or null becomes an optional value', () => {
  const schema = { properties: { key: { anyOf: [{ type: 'string' }, { type: 'null' }], default: null, title: 'Key' } } }
  expect(prepareSchema(schema as never)).toEqual({ properties: { key: { type: 'string', title: 'Key' } } })
})

test('a group of fields or null is not set until it is chosen', () => {
  const schema = { anyOf: [{ $ref: '#/$defs/Limit' }, { type: 'null' }], default: null }
  expect(prepareSchema(schema as never)).toEqual({
    anyOf: [{ type: 'null', title: 'Not set' }, { $ref: '#/$defs/Limit', variant: true }],
    default: null,
  })
})

test('a choice between two real types stays a choice', () => {
  const schema = { anyOf: [{ $ref: '#/$defs/A' }, { $ref: '#/$defs/B' }] }
  expect(prepareSchema(schema as never)).toEqual(schema)
})

test('plain types to choose from have names, and a number may be a whole one', () => {
  const schema = { anyOf: [{ type: 'string' }, { type: 'integer' }, { type: 'number' }, { type: 'boolean' }] }
  expect(prepareSchema(schema as never)).toEqual({
    anyOf: [
      { type: 'string', title: 'Text' },
      { type: 'number', title: 'Number' },
      { type: 'boolean', title: 'True or false' },
    ],
  })
})

test('an object of any values is edited as JSON, one of texts by fields', () => {
  const schema = {
    properties: {
      table: { type: 'object', additionalProperties: { $ref: '#/$defs/JsonValue' } },
      headers: { type: 'object', additionalProperties: { type: 'string' } },
    },
  }
  expect(uiSchemaOf(schema as never)).toEqual({ table: { 'ui:field': 'JsonField' } })
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
