import { expect, test } from 'vitest'

import type { Condition } from '@/lib/queries/conditions'
import type { Pipeline } from '@/lib/queries/pipelines'

import { needsOf } from './attention'

const pipeline = (id: string, fields: Partial<Pipeline> = {}) =>
  ({ id, failure: '', draft_failure: '', provisioning: null, warnings: [], ...fields }) as unknown as Pipeline

const condition = (fields: object) => ({ dead_letters: 0, reasons: [], breakers: [], ...fields }) as unknown as Condition

test('healthy pipelines need nobody', () => {
  expect(needsOf([pipeline('a')], new Map())).toEqual([])
})

test('the worst comes first, whatever the order of the pipelines', () => {
  const conditions = new Map([
    ['a', condition({ dead_letters: 5, reasons: [{ reason: 'http_500', count: 5 }] })],
    ['b', condition({ breakers: [{ output: 'erp', breaker: { state: 'open' } }] })],
  ])
  const needs = needsOf([pipeline('a'), pipeline('b'), pipeline('c', { failure: 'Gone.' })], conditions)
  expect(needs.map(({ kind, pipeline: { id } }) => [kind, id])).toEqual([
    ['failed', 'c'],
    ['breaker', 'b'],
    ['deadLetters', 'a'],
  ])
})

test('what an open breaker held back does not hide why it opened', () => {
  const reasons = [
    { reason: 'breaker_open', count: 140 },
    { reason: 'http_503', count: 10 },
  ]
  const needs = needsOf([pipeline('a')], new Map([['a', condition({ dead_letters: 150, reasons })]]))
  expect(needs).toMatchObject([{ kind: 'deadLetters', reason: 'http_503' }])
})
