import { useQuery } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'
import { pipelineKeys } from '@/lib/queries/pipelines'

export type Condition = components['schemas']['Condition']

/** Part of what is known of pipelines: whatever changes one changes them. */
export const conditionKeys = { all: [...pipelineKeys.all, 'conditions'] }

export const conditionsByPipeline = (conditions: Condition[]) =>
  new Map(conditions.map((condition) => [condition.pipeline, condition]))

/** How pipelines are, by their ids; those of which there is nothing to say are left out. Loaded once, then kept fresh by the live socket. */
export function useConditions() {
  return useQuery({
    queryKey: conditionKeys.all,
    queryFn: async () => conditionsByPipeline(await dataOf(api.GET('/api/v1/conditions/'))),
  })
}
