import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import { cursorOf, onlyAtTop } from '@/lib/api/cursor'
import type { components } from '@/lib/api/schema'
import { listed } from '@/lib/queries/listing'

export type Alert = components['schemas']['Alert']
export type AlertRule = components['schemas']['AlertRule']
export type AlertRuleDraft = components['schemas']['AlertRuleRequest']

const keys = { alerts: ['alerts'], rules: ['alert-rules'] }

const pageSize = 25

/** Open and resolved ones, newest first. */
export function useAlerts() {
  return useInfiniteQuery({
    queryKey: keys.alerts,
    initialPageParam: '',
    queryFn: ({ pageParam }) =>
      dataOf(api.GET('/api/v1/alerts/', { params: { query: { page_size: pageSize, ...(pageParam && { cursor: pageParam }) } } })),
    getNextPageParam: (page) => cursorOf(page.next),
    refetchInterval: onlyAtTop(5000),
  })
}

export function useAlertRules(search: string) {
  return useQuery({
    queryKey: [...keys.rules, search],
    queryFn: listed((page) => dataOf(api.GET('/api/v1/alert-rules/', { params: { query: { ...page, search } } }))),
  })
}

export function useSaveAlertRule(id: string | undefined) {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (body: AlertRuleDraft) =>
      id
        ? dataOf(api.PUT('/api/v1/alert-rules/{id}/', { params: { path: { id } }, body }))
        : dataOf(api.POST('/api/v1/alert-rules/', { body })),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.rules }),
  })
}

export function useDeleteAlertRule() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (id: string) => api.DELETE('/api/v1/alert-rules/{id}/', { params: { path: { id } } }),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.rules }),
  })
}
