import { useDebouncedValue } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { useCallback, useMemo } from 'react'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'
import { isCut, listed, typing } from '@/lib/queries/listing'

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
    queryFn: listed((page) => dataOf(api.GET('/api/v1/pipelines/', { params: { query: { ...page, search } } }))),
  })
}

/** To choose from: all, or of too many those that the server finds by what is typed. */
export function usePipelineChoices(typed: string) {
  const [settled] = useDebouncedValue(typed, typing)
  return usePipelines(isCut(usePipelines().data) ? settled : '')
}

/** Names by id; a deleted pipeline is shown by its id. */
export function usePipelineName(): (id: string | null) => string {
  const { data, isFetching } = usePipelines()
  const names = useMemo(() => new Map(data?.rows.map(({ id, name }) => [id, name])), [data])
  const isLoading = isFetching && (!data || data.hasMore)
  return useCallback((id) => (id === null ? '–' : (names.get(id) ?? (isLoading ? '…' : id))), [names, isLoading])
}
