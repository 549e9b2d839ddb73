import { expect, test } from 'vitest'

import { accepted, deadIn, deliveredIn, waitingIn } from './rates'
import { mergedSeconds, totalsWith, type Seconds } from './seconds'

test('a late message with fewer counts takes nothing back', () => {
  const newer = { '10': { a: 5, b: 1 }, '11': { a: 1 } }
  const late = { '9': { a: 7 }, '10': { a: 3, c: 2 } }
  const both = { '9': { a: 7 }, '10': { a: 5, b: 1, c: 2 }, '11': { a: 1 } }
  expect(mergedSeconds(newer, late)).toEqual(both)
  expect(mergedSeconds(late, newer)).toEqual(both)
  expect(newer['10']).toEqual({ a: 5, b: 1 })
})

/** Of a pipeline that accepts ten messages a second and delivers nine of them a second later; each tenth is a dead letter. */
function countsUpTo(now: number, first = 1): Seconds {
  const seconds: Seconds = {}
  for (let second = first; second <= now; second++) {
    const settled = second > 1 ? 1 : 0
    seconds[second] = { 'input.accepted': 10, 'output.out.delivered': 9 * settled, 'output.out.dead': settled }
  }
  return seconds
}

function sums(seconds: Seconds): Record<string, number> {
  const sum: Record<string, number> = {}
  for (const counts of Object.values(seconds)) for (const [event, n] of Object.entries(counts)) sum[event] = (sum[event] ?? 0) + n
  return sum
}

test('totals and the counts of the last seconds are of one moment', () => {
  const whole = countsUpTo(400)
  const reading = { since: 101, last_24_hours: sums({ ...whole, 400: { 'input.accepted': 4 } }), by_second: { ...countsUpTo(399, 101), 400: { 'input.accepted': 4 } } }
  expect(totalsWith(reading.by_second, reading)).toEqual(reading.last_24_hours)
  // The socket has sent what came later, and still holds seconds from before those of the reading.
  const newest = countsUpTo(405)
  const totals = totalsWith(mergedSeconds(reading.by_second, countsUpTo(405, 95)), reading)
  expect(totals).toEqual(sums(newest))
  expect(waitingIn(totals)).toBe(10)
  expect(accepted(totals)).toBe(deliveredIn(totals) + deadIn(totals) + waitingIn(totals))
})
