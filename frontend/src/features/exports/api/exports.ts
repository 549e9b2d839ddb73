import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import { cursorOf, onlyAtTop } from '@/lib/api/cursor'
import type { components } from '@/lib/api/schema'
import type { Filter } from '@/lib/use-filter'

export type Export = components['schemas']['Export']
export type ExportDetail = components['schemas']['ExportDetail']
export type Waiting = components['schemas']['Waiting']

const keys = {
  all: ['exports'],
  list: (filter: Filter) => ['exports', 'list', filter],
  waiting: ['exports', 'waiting'],
  one: (id: string) => ['exports', 'one', id],
}

const fresh = 5000

export function useExports(filter: Filter) {
  return useInfiniteQuery({
    queryKey: keys.list(filter),
    initialPageParam: '',
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET('/api/v1/exports/', {
          params: { query: { ...filter, ...(pageParam && { cursor: pageParam }) } as Record<string, never> },
        }),
      ),
    getNextPageParam: (page) => cursorOf(page.next),
    refetchInterval: onlyAtTop(fresh),
  })
}

/** What is staged and in no file yet. */
export function useWaiting() {
  return useQuery({
    queryKey: keys.waiting,
    queryFn: () => dataOf(api.GET('/api/v1/exports/waiting/')),
    refetchInterval: fresh,
  })
}

export function useExport(id: string) {
  return useQuery({
    queryKey: keys.one(id),
    queryFn: () => dataOf(api.GET('/api/v1/exports/{id}/', { params: { path: { id } } })),
    refetchInterval: fresh,
  })
}

export function useRetryExport() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: ({ id, version }: { id: string; version: 'original' | 'current' }) =>
      dataOf(api.POST('/api/v1/exports/{id}/retry/', { params: { path: { id } }, body: { version } })),
    onSettled: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}

export function useAbortExport() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (id: string) => dataOf(api.POST('/api/v1/exports/{id}/abort/', { params: { path: { id } } })),
    onSettled: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}

/** Makes a file of what is staged, without waiting for its limits. */
export function useCloseExport() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (body: { pipeline: string; output: string }) => dataOf(api.POST('/api/v1/exports/close/', { body })),
    onSettled: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}
