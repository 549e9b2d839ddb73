import { useQuery } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'

export type Pipeline = components['schemas']['Pipeline']

export const pipelineKeys = {
  all: ['pipelines'],
  list: (search: string) => ['pipelines', 'list', search],
  one: (id: string) => ['pipelines', id],
  part: (id: string, part: string) => ['pipelines', id, part],
}

export function usePipelines(search = '') {
  return useQuery({
    queryKey: pipelineKeys.list(search),
    queryFn: async () =>
      (await dataOf(api.GET('/api/v1/pipelines/', { params: { query: { search, page_size: 500 } } }))).results,
  })
}

/** Names by id; a deleted pipeline is shown by its id. */
export function usePipelineName(): (id: string | null) => string {
  const pipelines = usePipelines()
  return (id) => pipelines.data?.find((pipeline) => pipeline.id === id)?.name ?? id ?? '–'
}
