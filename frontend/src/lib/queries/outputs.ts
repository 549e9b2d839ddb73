import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'
import { conditionKeys } from '@/lib/queries/conditions'

export type Output = components['schemas']['Output']
export type Breaker = components['schemas']['Breaker']

export const outputKeys = { of: (pipeline: string) => ['outputs', pipeline] }

/** The published outputs and external calls of a pipeline, each with its state, which the live socket keeps fresh. */
export function useOutputs(pipeline: string) {
  return useQuery({
    queryKey: outputKeys.of(pipeline),
    queryFn: () => dataOf(api.GET('/api/v1/pipelines/{pipeline}/outputs/', { params: { path: { pipeline } } })),
  })
}

/** Opens or closes a circuit breaker by hand. */
export function useSetBreaker() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: ({ pipeline, output, open }: { pipeline: string; output: string; open: boolean }) =>
      dataOf(
        api.POST('/api/v1/pipelines/{pipeline}/outputs/{name}/breaker/', {
          params: { path: { pipeline, name: output } },
          body: { open },
        }),
      ),
    onSuccess: (_, { pipeline }) =>
      Promise.all([
        client.invalidateQueries({ queryKey: outputKeys.of(pipeline) }),
        client.invalidateQueries({ queryKey: conditionKeys.all }),
      ]),
  })
}
