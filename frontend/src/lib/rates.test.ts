import { expect, test } from 'vitest'

import { deadIn, deliveredIn, ratesByEvent, timeline } from './rates'

test('deliveries and failures are summed over outputs', () => {
  const counts = { 'output.a.delivered': 2, 'output.b.delivered': 3, 'output.a.dead': 1, 'adapting.dead': 4 }
  expect(deliveredIn(counts)).toBe(5)
  expect(deadIn(counts)).toBe(5)
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
