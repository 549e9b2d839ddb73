import { useQuery } from '@tanstack/react-query'

import { api, dataOf, linkTo } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'

export type Usage = components['schemas']['Usage']
export type Step = 'minute' | 'hour' | 'day'

/** How far back each step looks. */
export const ranges: Record<Step, number> = { minute: 3600, hour: 48 * 3600, day: 30 * 86_400 }

export function useUsage(step: Step, pipeline: string | null) {
  return useQuery({
    queryKey: ['usage', step, pipeline],
    queryFn: () =>
      dataOf(api.GET('/api/v1/usage/', { params: { query: { step, since: sinceOf(step), ...(pipeline && { pipeline }) } } })),
    refetchInterval: 10_000,
  })
}

export function exportAddress(step: Step, pipeline: string | null): string {
  return linkTo('/api/v1/usage/export/', { step, since: sinceOf(step), ...(pipeline && { pipeline }) })
}

function sinceOf(step: Step): string {
  return new Date(Date.now() - ranges[step] * 1000).toISOString()
}
