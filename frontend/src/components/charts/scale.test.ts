import { expect, test } from 'vitest'

import { day, runsOf, spread, timeTicks, valueTicks, zoneOffset } from './scale'

test('values end at the first round one that holds all of them', () => {
  expect(valueTicks(28, 4)).toEqual([0, 10, 20, 30])
  expect(valueTicks(100, 4)).toEqual([0, 25, 50, 75, 100])
  expect(valueTicks(0, 4)).toHaveLength(2)
  expect(valueTicks(0.03, 3).at(-1)).toBeCloseTo(0.03)
})

test('times are round on the clock of the reader', () => {
  const first = Date.UTC(2026, 0, 1, 10, 7) / 1000
  expect(timeTicks(first, first + 3600, 6, 0)).toEqual({ step: 600, ticks: [3, 13, 23, 33, 43, 53].map((after) => first + after * 60) })
  const saoPaulo = zoneOffset(new Date(first * 1000), 'America/Sao_Paulo')
  expect(saoPaulo).toBe(-3 * 3600)
  const { step, ticks } = timeTicks(first, first + 6 * day, 6, saoPaulo)
  expect(step).toBe(day)
  expect(new Date((ticks[0] ?? 0) * 1000).toISOString()).toBe('2026-01-02T03:00:00.000Z')
})

test('labels keep their distance and stay above the bottom', () => {
  expect(spread([10, 12, 90], 14, 100)).toEqual([10, 24, 90])
  expect(spread([98, 99], 14, 100)).toEqual([86, 100])
})

test('a line is drawn in parts where it has gaps', () => {
  const known = (values: (number | null)[]) => runsOf(values, (value) => value !== null)
  expect(known([null, 1, 2, null, null, 3])).toEqual([[1, 2], [3]])
  expect(known([1, 2])).toEqual([[1, 2]])
  expect(known([null])).toEqual([])
})
