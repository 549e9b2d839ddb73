import { expect, test } from 'vitest'

import { toggled, toggledThrough } from './choosing'

const keys = ['a', 'b', 'c', 'd']
const through = (chosen: string[], from: string, to: string) => [...toggledThrough(new Set(chosen), keys, from, to)].sort().join('')

test('a row is chosen, and is not any more', () => {
  expect([...toggled(new Set(['a']), 'b')]).toEqual(['a', 'b'])
  expect([...toggled(new Set(['a', 'b']), 'b')]).toEqual(['a'])
})

test('all rows between two become as the second one does, in both directions', () => {
  expect(through(['a'], 'a', 'c')).toBe('abc')
  expect(through(['d'], 'd', 'b')).toBe('bcd')
  expect(through(['a', 'b', 'c', 'd'], 'b', 'c')).toBe('ad')
})

test('where the first row is gone, the second one stands alone', () => {
  expect(through(['a'], 'gone', 'c')).toBe('ac')
})
