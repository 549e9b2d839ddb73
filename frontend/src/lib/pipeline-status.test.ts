import { expect, test } from 'vitest'

import type { Condition } from '@/lib/queries/conditions'
import type { Pipeline } from '@/lib/queries/pipelines'

import { needsOf, states, statusOf, troublesOf, type Finding, type State } from './pipeline-status'

const finding = (state: State, place = '') => ({ state, place }) as Finding
const status = (state: State, ...more: State[]) => ({ ...finding(state), more: more.map((one) => finding(one)) })
const pipeline = (id: string, state: State = 'unknown') => ({ id, status: status(state) }) as Pipeline
const condition = (id: string, state: State, ...more: State[]): [string, Condition] => [id, { pipeline: id, status: status(state, ...more) } as Condition]

test('what the socket says is newer than what the list said', () => {
  const conditions = new Map([condition('a', 'blocked')])
  expect(statusOf(pipeline('a', 'idle'), conditions).state).toBe('blocked')
  expect(statusOf(pipeline('b', 'blocked'), conditions).state).toBe('idle')
  expect(statusOf(pipeline('a', 'failing'), undefined).state).toBe('failing')
})

test('what needs nobody is no trouble', () => {
  expect(troublesOf(status('delivering'))).toEqual([])
  expect(troublesOf(status('starting'))).toEqual([])
  expect(troublesOf(status('paused', 'degraded', 'unpublished')).map(({ state }) => state)).toEqual(['degraded'])
})

test('the worst comes first, whatever the order of the pipelines', () => {
  const conditions = [condition('a', 'degraded'), condition('b', 'blocked', 'input_failing', 'degraded'), condition('c', 'failing')].map(([, one]) => one)
  const needs = needsOf([...conditions, condition('d', 'delivering')[1]], (id) => id.toUpperCase())
  expect(needs.map(({ pipeline, finding: { state } }) => [state, pipeline.id, pipeline.name])).toEqual([
    ['failing', 'c', 'C'],
    ['blocked', 'b', 'B'],
    ['input_failing', 'b', 'B'],
    ['degraded', 'a', 'A'],
    ['degraded', 'b', 'B'],
  ])
})

test('the states are in order of their severity', () => {
  expect(states[0]).toBe('failing')
  expect(states.at(-1)).toBe('idle')
})
