import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import { cursorOf, onlyAtTop } from '@/lib/api/cursor'
import type { components } from '@/lib/api/schema'
import { outputKeys } from '@/lib/queries/outputs'
import type { Filter } from '@/lib/use-filter'

export type DeadLetter = components['schemas']['DeadLetter']
export type DeadLetterGroup = components['schemas']['DeadLetterGroup']
export type Attempt = components['schemas']['Attempt']

const keys = {
  letters: ['dead-letters'],
  list: (filter: Filter) => ['dead-letters', 'list', filter],
  summary: (filter: Filter) => ['dead-letters', 'summary', filter],
  one: (id: string) => ['dead-letters', 'one', id],
  attempts: (filter: Filter) => ['attempts', filter],
  events: (pipeline: string) => [...outputKeys.of(pipeline), 'events'],
}

const fresh = 5000

/** One page of a list. */
function pageOf(filter: Filter, cursor: string) {
  const query: Filter = { ...filter, page_size: '100', ...(cursor && { cursor }) }
  return { params: { query: query as Record<string, never> } }
}

export function useDeadLetters(filter: Filter) {
  return useInfiniteQuery({
    queryKey: keys.list(filter),
    initialPageParam: '',
    queryFn: ({ pageParam }) => dataOf(api.GET('/api/v1/dead-letters/', pageOf(filter, pageParam))),
    getNextPageParam: (page) => cursorOf(page.next),
    refetchInterval: onlyAtTop(fresh),
  })
}

export function useDeadLetterSummary(filter: Filter) {
  return useQuery({
    queryKey: keys.summary(filter),
    queryFn: () =>
      dataOf(api.GET('/api/v1/dead-letters/summary/', { params: { query: filter as Record<string, never> } })),
    refetchInterval: fresh,
  })
}

export function useDeadLetter(id: string | null) {
  return useQuery({
    queryKey: keys.one(id ?? ''),
    queryFn: () => dataOf(api.GET('/api/v1/dead-letters/{id}/', { params: { path: { id: id ?? '' } } })),
    enabled: id !== null,
    refetchInterval: fresh,
  })
}

/** How many a selection reaches, asked before anything is done. */
export function useSelectionPreview(filter: Filter | null) {
  return useQuery({
    queryKey: ['dead-letters', 'preview', filter],
    queryFn: () => dataOf(api.POST('/api/v1/dead-letters/count/', { body: { filter: filter ?? {} } })),
    enabled: filter !== null,
    gcTime: 0,
  })
}

export function useRedrive() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (body: { filter: Filter; version: 'original' | 'current' }) =>
      dataOf(api.POST('/api/v1/dead-letters/redrive/', { body })),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.letters }),
  })
}

export function useDiscard() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (body: { filter: Filter; reason: string }) =>
      dataOf(api.POST('/api/v1/dead-letters/discard/', { body })),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.letters }),
  })
}

export function useAttempts(filter: Filter) {
  return useInfiniteQuery({
    queryKey: keys.attempts(filter),
    initialPageParam: '',
    queryFn: ({ pageParam }) => dataOf(api.GET('/api/v1/attempts/', pageOf(filter, pageParam))),
    getNextPageParam: (page) => cursorOf(page.next),
    refetchInterval: onlyAtTop(fresh),
  })
}

export function useOutputEvents(pipeline: string) {
  return useQuery({
    queryKey: keys.events(pipeline),
    queryFn: async () =>
      (
        await dataOf(
          api.GET('/api/v1/output-events/', { params: { query: { pipeline_id: pipeline, page_size: 50 } } }),
        )
      ).results,
    refetchInterval: fresh,
  })
}
