import { expect, test } from 'vitest'

import { InexactNumberError } from '@/lib/json'

import { parseYaml, toYaml } from './config-yaml'

test('a configuration is the same when it is written and read, with long numbers', () => {
  const config = { transforms: [{ type: 'set', value: 9007199254740993n }, { value: [1, 1.5, '9007199254740993', null, true] }] }
  expect(parseYaml(toYaml(config))).toEqual(config)
  expect(toYaml(config)).toContain('value: 9007199254740993\n')
})

test.each([
  ['+12', 12],
  ['.5', 0.5],
  ['+1.5e3', 1500],
  ['2.', 2],
  ['0x10', 16],
  ['0o17', 15],
  ['0xffffffffffffffff', 18446744073709551615n],
  ['1_000', '1_000'],
])('%s is read as YAML means it', (written, value) => {
  expect(parseYaml(`value: ${written}`)).toEqual({ value })
})

test('a number with more digits than can be kept is refused', () => {
  expect(() => parseYaml('value: 0.12345678901234567891')).toThrow(InexactNumberError)
})

test('what is not YAML is an error', () => {
  expect(() => parseYaml('value: [1')).toThrow(/flow/i)
})
