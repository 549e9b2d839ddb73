import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect } from 'react'

import { api, dataOf } from '@/lib/api/client'
import { cursorOf } from '@/lib/api/cursor'
import type { components } from '@/lib/api/schema'
import { useLive } from '@/lib/live'

export type Line = components['schemas']['SqlLine']
export type Failure = components['schemas']['SqlFailure']
export type Objects = components['schemas']['SqlObjects']
export type Source = components['schemas']['SqlSourceDescription']
export type RunningQuery = components['schemas']['SqlListedQuery']
export type Language = components['schemas']['SqlLanguage']

export const keys = {
  language: ['sql', 'language'],
  objects: ['sql', 'objects'],
  connectors: ['sql', 'connectors'],
  queries: ['sql', 'queries'],
  history: ['sql', 'history'],
}

export function useLanguage() {
  return useQuery({
    queryKey: keys.language,
    queryFn: () => dataOf(api.GET('/api/v1/sql/language/')),
    staleTime: Infinity,
  })
}

export function useObjects() {
  return useQuery({ queryKey: keys.objects, queryFn: () => dataOf(api.GET('/api/v1/sql/objects/')) })
}

/** The same, also those that others make meanwhile. Whoever uses it is rendered once a second. */
export function useLiveObjects() {
  const client = useQueryClient()
  const { sqlSources } = useLive()
  useEffect(() => {
    void client.invalidateQueries({ queryKey: keys.objects })
  }, [client, sqlSources])
  return useObjects()
}

export function useConnectors() {
  return useQuery({ queryKey: keys.connectors, queryFn: () => dataOf(api.GET('/api/v1/sql/connectors/')) })
}

export function useQueries() {
  return useQuery({
    queryKey: keys.queries,
    queryFn: () => dataOf(api.GET('/api/v1/sql/queries/')),
    refetchInterval: 2000,
  })
}

export function useHistory() {
  return useInfiniteQuery({
    queryKey: keys.history,
    initialPageParam: '',
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET('/api/v1/sql/history/', { params: { query: (pageParam ? { cursor: pageParam } : {}) as Record<string, never> } }),
      ),
    getNextPageParam: (page) => cursorOf(page.next),
  })
}

export function useTerminate() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (id: string) => dataOf(api.POST('/api/v1/sql/', { body: { text: `TERMINATE \`${id}\`` } })),
    onSettled: () => client.invalidateQueries({ queryKey: keys.queries }),
  })
}

/** What is wrong with the syntax of a text; nothing is executed. */
export async function check(text: string): Promise<Failure | null> {
  return (await dataOf(api.POST('/api/v1/sql/check/', { body: { text } }))).error ?? null
}
