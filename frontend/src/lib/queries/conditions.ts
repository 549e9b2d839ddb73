import { useQuery } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'

export type Condition = components['schemas']['Condition']

export const conditionKeys = { all: ['conditions'] }

export const conditionsByPipeline = (conditions: Condition[]) =>
  new Map(conditions.map((condition) => [condition.pipeline, condition]))

/** What needs somebody, by pipeline; healthy ones are left out. Loaded once, then kept fresh by the live socket. */
export function useConditions() {
  return useQuery({
    queryKey: conditionKeys.all,
    queryFn: async () => conditionsByPipeline(await dataOf(api.GET('/api/v1/conditions/'))),
  })
}
