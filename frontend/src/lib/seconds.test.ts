import { expect, test } from 'vitest'

import { mergedSeconds } from './seconds'

test('a late message with fewer counts takes nothing back', () => {
  const newer = { '10': { a: 5, b: 1 }, '11': { a: 1 } }
  const late = { '9': { a: 7 }, '10': { a: 3, c: 2 } }
  const both = { '9': { a: 7 }, '10': { a: 5, b: 1, c: 2 }, '11': { a: 1 } }
  expect(mergedSeconds(newer, late)).toEqual(both)
  expect(mergedSeconds(late, newer)).toEqual(both)
  expect(newer['10']).toEqual({ a: 5, b: 1 })
})
