import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'
import { listed } from '@/lib/queries/listing'

export type Alert = components['schemas']['Alert']
export type AlertRule = components['schemas']['AlertRule']
export type AlertRuleDraft = components['schemas']['AlertRuleRequest']

const keys = { alerts: ['alerts'], rules: ['alert-rules'] }

export function useAlerts() {
  return useQuery({
    queryKey: keys.alerts,
    queryFn: async () => (await dataOf(api.GET('/api/v1/alerts/', { params: { query: { page_size: 100 } } }))).results,
    refetchInterval: 5000,
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
