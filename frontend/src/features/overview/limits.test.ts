import { expect, test } from 'vitest'

import type { LiveNews } from '@/lib/live-socket'
import type { Pipeline } from '@/lib/queries/pipelines'

import { limitsOf } from './limits'

test('the limit for which most messages wait comes first, and outputs without one are left out', () => {
  const limit = (tokens: number, waiting: number) => ({ rate_limit: { tokens, most: 5, waiting } })
  const outputs = { a: { erp: limit(4, 0), crm: limit(0, 0), log: { rate_limit: null } }, b: { erp: limit(0, 7) } }
  const pipelines = ['a', 'b', 'c'].map((id) => ({ id })) as Pipeline[]
  const limits = limitsOf(pipelines, outputs as unknown as LiveNews['outputs'])
  expect(limits.map(({ pipeline, output }) => `${pipeline.id}/${output}`)).toEqual(['b/erp', 'a/crm', 'a/erp'])
})
