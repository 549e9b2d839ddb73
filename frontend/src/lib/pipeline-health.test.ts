import { expect, test } from 'vitest'

import type { Condition } from '@/lib/queries/conditions'
import type { Pipeline } from '@/lib/queries/pipelines'

import { healthOf } from './pipeline-health'

const pipeline = (fields: Partial<Pipeline> = {}) =>
  ({ published_version: 1, paused: false, failure: '', draft_failure: '', provisioning: null, ...fields }) as Pipeline

const condition = (dead_letters: number, ...states: string[]) =>
  ({ dead_letters, breakers: states.map((state) => ({ output: state, breaker: { state } })) }) as unknown as Condition

test('a pipeline without troubles accepts', () => {
  expect(healthOf(pipeline(), undefined)).toBe('accepting')
})

test('dead letters and breakers show, the worse of them first', () => {
  expect(healthOf(pipeline(), condition(150))).toBe('deadLetters')
  expect(healthOf(pipeline(), condition(150, 'half_open'))).toBe('probing')
  expect(healthOf(pipeline(), condition(150, 'half_open', 'open'))).toBe('breakerOpen')
})

test('a version that cannot run is worse than what its outputs do', () => {
  expect(healthOf(pipeline({ failure: 'No such connector.' }), condition(1, 'open'))).toBe('failed')
  expect(healthOf(pipeline({ published_version: null }), undefined)).toBe('draft')
})

test('a draft that cannot be read has failed, unless another version is published', () => {
  const unreadable = { draft_failure: 'Unknown type.' }
  expect(healthOf(pipeline({ ...unreadable, published_version: null }), undefined)).toBe('failed')
  expect(healthOf(pipeline(unreadable), undefined)).toBe('accepting')
})

test('a pause does not hide an open breaker', () => {
  expect(healthOf(pipeline({ paused: true }), condition(0, 'open'))).toBe('breakerOpen')
  expect(healthOf(pipeline({ paused: true }), condition(3))).toBe('paused')
})
