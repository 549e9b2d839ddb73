import { expect, test } from 'vitest'

import { titleAt } from './json-schema'

const schema = {
  $defs: {
    Login: { type: 'object', title: 'Login', properties: { password: { type: 'string', title: 'Password' } } },
    Loop: { anyOf: [{ $ref: '#/$defs/Loop' }, { type: 'null' }] },
  },
  type: 'object',
  properties: {
    login: { title: 'Sign-in', anyOf: [{ $ref: '#/$defs/Login' }, { type: 'null' }] },
    brokers: { title: 'Brokers', type: 'array', items: { type: 'object', properties: { port: { title: 'Port' } } } },
    loop: { $ref: '#/$defs/Loop' },
  },
} as never

const same = (title: string) => title

test('a field is called by the titles that lead to it', () => {
  expect(titleAt(schema, 'login.password', same)).toBe('Sign-in › Password')
  expect(titleAt(schema, 'brokers.1.port', same)).toBe('Brokers › 2 › Port')
  expect(titleAt(schema, 'login.password', (title) => title.toUpperCase())).toBe('SIGN-IN › PASSWORD')
})

test('what the schema does not name is called by its path', () => {
  expect(titleAt(schema, 'unknown.field', same)).toBe('unknown › field')
  expect(titleAt(schema, 'loop.toString', same)).toBe('loop › toString')
  expect(titleAt(schema, '', same)).toBe('')
})
