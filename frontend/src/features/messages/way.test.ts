import { expect, test } from 'vitest'

import { acceptedAt, barOf, wayOf, type Attempt, type BilledDelivery, type DeadLetter } from './way'

const at = Date.UTC(2026, 0, 31, 12, 0, 0)
const id = `${at.toString(16).padStart(12, '0')}7abc8def0123456789ab`.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
const moment = (milliseconds: number) => new Date(at + milliseconds).toISOString()

test('the id of a message says when it was accepted, if it is of version 7', () => {
  expect(acceptedAt(id)).toBe(at)
  expect(acceptedAt('b9c4f0c8-6a1e-4f6e-9d0c-0123456789ab')).toBeUndefined()
  expect(acceptedAt('order-7')).toBeUndefined()
})

test('the way of a message is told in its order, with where and how long', () => {
  const attempts = [
    { pipeline: 'p', output: 'erp', at: moment(900), milliseconds: 100, reason: '' },
    { pipeline: 'p', output: 'erp', at: moment(300), milliseconds: 200, reason: 'http_503' },
  ] as Attempt[]
  const letters = [{ pipeline: 'p', output: 'erp', first_at: moment(400), closed_at: moment(910), state: 'delivered' }] as DeadLetter[]
  const billed = [{ pipeline: 'p', output: 'erp', at: moment(1000), bytes: 3 }] as BilledDelivery[]
  const way = wayOf(id, attempts, letters, billed)
  expect(way.map(({ kind }) => kind)).toEqual(['accepted', 'failedAttempt', 'deadLetter', 'attempt', 'closed', 'billed'])
  expect(way.map((event) => barOf(event, way).left)).toEqual([0, 10, 40, 80, 91, 100])
  expect(way.map((event) => barOf(event, way).width)).toEqual([0, 20, 0, 10, 0, 0])
})

test('of a message that nobody knows, nothing is told', () => {
  expect(wayOf(id, [], [], [])).toEqual([])
})
