import { expect, test } from 'vitest'

import { InexactNumberError } from '@/lib/json'

import { parseYaml, toYaml, UnknownConnectorError, withConnectorIds, withConnectorNames } from './config-yaml'

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

const shop = { id: '0190a3c1-0000-7000-8000-000000000001', name: 'Shop' }
const files = { id: '0190a3c1-0000-7000-8000-000000000002', name: 'Files of partners' }
const config = (input: string, step: string, output: string) => ({
  input: { type: 'connector', connector: input },
  transforms: [
    { type: 'set', path: 'connector', value: { connector: 'Shop' } },
    { type: 'call', connector: step },
  ],
  outputs: [{ name: 'files', connector: output, options: { connector: 'Shop' } }, {}],
})

test('connectors have their names where a pipeline uses them, and nowhere else', () => {
  const stored = config(shop.id, shop.id, files.id)
  const named = config('Shop', 'Shop', 'Files of partners')
  expect(withConnectorNames(stored, [shop, files])).toEqual(named)
  expect(withConnectorIds(named, [shop, files])).toEqual(stored)
})

test('ids may stand for names; a name that no connector has is an error', () => {
  const stored = config(shop.id, shop.id, files.id)
  expect(withConnectorNames(stored, [shop])).toEqual(config('Shop', 'Shop', files.id))
  expect(withConnectorIds(stored, [shop])).toEqual(stored)
  expect(() => withConnectorIds(config('Shop', 'Shops', 'Shop'), [shop])).toThrow(UnknownConnectorError)
})
