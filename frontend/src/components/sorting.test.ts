import { expect, test } from 'vitest'

import { sorted, sortingFrom, textOf } from './sorting'

const rows = [
  { name: 'beta', n: 2 },
  { name: 'Alpha', n: null },
  { name: 'gamma', n: 10 },
]

test('texts are sorted as people sort them, numbers by their size', () => {
  expect(sorted(rows, (row) => row.name, false).map((row) => row.name)).toEqual(['Alpha', 'beta', 'gamma'])
  expect(sorted(rows, (row) => row.n, true).map((row) => row.n)).toEqual([10, 2, null])
})

test('rows without a value are last in both directions', () => {
  expect(sorted(rows, (row) => row.n, false).map((row) => row.n)).toEqual([2, 10, null])
})

test('an order stands in the address as it is read from there', () => {
  for (const text of ['name', '-letters']) expect(textOf(sortingFrom(text)!)).toBe(text)
  expect(sortingFrom(null)).toBeNull()
})
