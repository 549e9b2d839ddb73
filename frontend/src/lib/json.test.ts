import { expect, test } from 'vitest'

import { InexactNumberError, parseJson, toJson } from './json'

test.each(['9007199254740993', '-9223372036854775808', '18446744073709551615', '[1,{"a":9007199254740993}]', '1.5', 'null', '"9"'])(
  '%s is the same when it is written again',
  (text) => {
    expect(toJson(parseJson(text))).toBe(text)
  },
)

test('a whole number is a bigint only where a number would round it', () => {
  expect(parseJson('[9007199254740991, 9007199254740993, 1e2, 1.10]')).toEqual([9007199254740991, 9007199254740993n, 100, 1.1])
})

test.each(['0.12345678901234567891', '1e400', '{"a": 12345678901234567890.5}'])('%s is refused rather than rounded', (text) => {
  expect(() => parseJson(text)).toThrow(InexactNumberError)
})

test('what is not JSON is a syntax error', () => {
  expect(() => parseJson('{a}')).toThrow(SyntaxError)
})
