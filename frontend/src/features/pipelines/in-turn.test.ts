import { expect, test } from 'vitest'

import { Problem } from '@/lib/api/problem'

import { inTurn, type Progress } from './in-turn'

const never = () => false

test('one that is refused is named with its reason, and the others are done', async () => {
  const steps: Progress<string>[] = []
  const act = (name: string) => (name === 'b' ? Promise.reject(new Problem(403, { detail: 'Your role does not allow this.' })) : Promise.resolve())
  const outcome = await inTurn(['a', 'b', 'c'], act, (step) => steps.push(step), never)
  expect(outcome).toEqual({ done: 2, refused: [{ item: 'b', why: 'Your role does not allow this.' }] })
  expect(steps.map(({ done, refused }) => [done, refused.length])).toEqual([[0, 0], [1, 0], [1, 1], [2, 1]])
})

test('one is begun only after the one before has ended', async () => {
  let running = 0
  const most: number[] = []
  const act = async () => {
    most.push(++running)
    await Promise.resolve()
    running--
  }
  await inTurn([1, 2, 3], act, () => undefined, never)
  expect(most).toEqual([1, 1, 1])
})

test('after a stop no further one is begun', async () => {
  const acted: number[] = []
  const act = (item: number) => Promise.resolve(acted.push(item))
  const outcome = await inTurn([1, 2, 3], act, () => undefined, () => acted.length === 2)
  expect([acted, outcome.done]).toEqual([[1, 2], 2])
})
