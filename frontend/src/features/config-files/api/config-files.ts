import { useMutation, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'

export type Step = components['schemas']['Step']

export interface Wanted {
  yaml: string
  prune: boolean
}

export function useExport() {
  return useMutation({
    mutationFn: () => dataOf(api.GET('/api/v1/config-files/', { parseAs: 'text' })),
  })
}

/** What applying would do; nothing is changed. */
export function usePlan() {
  return useMutation({
    mutationFn: (wanted: Wanted) => dataOf(api.POST('/api/v1/config-files/', { body: { ...wanted, dry_run: true } })),
  })
}

export function useApply() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (wanted: Wanted) => dataOf(api.POST('/api/v1/config-files/', { body: { ...wanted, dry_run: false } })),
    onSuccess: () => client.invalidateQueries(),
  })
}
