import { expect, test } from 'vitest'

import { ago, duration, elapsed, moment } from './format'

const now = new Date('2026-11-26T12:00:00Z')
const before = (seconds: number) => new Date(now.getTime() - seconds * 1000)

test('a moment is as short as it can be: the time today, the day this year, else the year, too', () => {
  expect(moment(before(60), now, 'en', 'UTC')).toBe('11:59:00 AM')
  expect(moment(before(86_400), now, 'en', 'UTC')).toBe('Nov 25, 12:00 PM')
  expect(moment(new Date('2025-11-26T12:00:00Z'), now, 'en', 'UTC')).toContain('2025')
  expect(moment(before(60), now, 'pt-BR', 'America/Sao_Paulo')).toBe('08:59:00')
})

test('distances and durations have units, without points', () => {
  expect(ago(before(125), now, 'en')).toBe('2 min ago')
  expect(ago(before(-7200), now, 'en')).toBe('in 2 hr')
  expect([0, 12, 200, 3723].map((seconds) => duration(seconds, 'en'))).toEqual(['0 s', '12 s', '3 min 20 s', '1 h 2 min 3 s'])
  expect([850, 1940, 200_000].map((milliseconds) => elapsed(milliseconds, 'en'))).toEqual(['850 ms', '1.9 s', '3 min 20 s'])
})
