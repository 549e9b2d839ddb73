import { expect, test } from 'vitest'

import { eventsOf, stepRates } from './events'
import type { Part } from './flow/parts'

test('a step is reached by what the steps before it let through', () => {
  const rates = { 'step.1.dropped': 4, 'step.2.dead': 1, 'adapting.dropped': 4 }
  expect(stepRates(rates, 10, 3)).toEqual([
    { reaching: 10, dropped: 4, failing: 0 },
    { reaching: 6, dropped: 0, failing: 1 },
    { reaching: 5, dropped: 0, failing: 0 },
  ])
})

test('the events of a step are its own', () => {
  const step = { path: 'transforms.0', kind: 'step', value: { type: 'cast' } } as Part
  expect(eventsOf(step, ['step.1.dropped', 'step.11.dropped', 'output.step.1.dead'])).toEqual(['step.1.dropped'])
})
