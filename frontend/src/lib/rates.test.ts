import { expect, test } from 'vitest'

import { deadIn, deliveredIn, historyTimeline, ratesByEvent, timeline, waitingIn } from './rates'

test('deliveries and failures are summed over outputs', () => {
  const counts = { 'output.a.delivered': 2, 'output.b.delivered': 3, 'output.a.dead': 1, 'adapting.dead': 4 }
  expect(deliveredIn(counts)).toBe(5)
  expect(deadIn(counts)).toBe(5)
})

test('a redelivered dead letter is one message, wherever it died', () => {
  const counts = { 'input.accepted': 5, 'output.a.delivered': 3, 'output.a.dead': 1, 'output.a.redelivered': 1 }
  expect(waitingIn(counts)).toBe(2)
  expect(waitingIn({ ...counts, 'adapting.dead': 2, 'adapting.redelivered': 1 })).toBe(1)
  expect(waitingIn({ ...counts, 'filtering.dead': 1, 'syndicating.dead': 1 })).toBe(0)
})

test('the timeline ends before the seconds that are still being counted', () => {
  const points = timeline({ 98: { 'input.accepted': 7 }, 99: { 'input.accepted': 1 } }, 100, 3)
  expect(points.map((point) => [point.second, point.in])).toEqual([
    [96, 0],
    [97, 0],
    [98, 7],
  ])
})

test('rates are means over the window, seconds without counts included', () => {
  expect(ratesByEvent({ 97: { 'input.accepted': 10 }, 98: { 'input.accepted': 20 } }, 100, 10)).toEqual({
    'input.accepted': 3,
  })
})

test('what waited is told by step, zero goes on where nothing happened, and what is not known is a gap', () => {
  const step = (at: number, waiting: number | null) => ({ at, seconds: 60, counts: { 'input.accepted': 60 }, waiting })
  const steps = [step(60, null), step(120, 7), step(240, 0), step(360, 4)]
  const points = historyTimeline(steps, 400, 1, new Date(0))
  expect(points.map(({ second, in: rate, waiting }) => [second, rate, waiting])).toEqual([
    [0, 0, null],
    [60, 1, null],
    [120, 1, 7],
    [180, 0, null],
    [240, 1, 0],
    [300, 0, 0],
    [360, 1, 4],
  ])
  expect(timeline({}, 100, 2).map(({ waiting }) => waiting)).toEqual([null, null])
})
