import { useThrottledValue } from '@mantine/hooks'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect } from 'react'

import { api, dataOf, linkTo } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'
import { useLive } from '@/lib/live'

export type Usage = components['schemas']['Usage']
export type Step = 'minute' | 'hour' | 'day'

/** How far back each step looks. */
export const ranges: Record<Step, number> = { minute: 3600, hour: 48 * 3600, day: 30 * 86_400 }

/** At most this often is all of it loaded again. */
const freshAfter = 2000

/** Deliveries by period, pipeline and output; loaded again whenever more were billed. */
export function useUsage(step: Step, pipeline: string | null) {
  const client = useQueryClient()
  const billed = useThrottledValue(useLive().usage?.deliveries, freshAfter)
  useEffect(() => {
    void client.invalidateQueries({ queryKey: ['usage'] })
  }, [client, billed])
  return useQuery({
    queryKey: ['usage', step, pipeline],
    queryFn: () =>
      dataOf(api.GET('/api/v1/usage/', { params: { query: { step, since: sinceOf(step), ...(pipeline && { pipeline }) } } })),
  })
}

export function exportAddress(step: Step, pipeline: string | null): string {
  return linkTo('/api/v1/usage/export/', { step, since: sinceOf(step), ...(pipeline && { pipeline }) })
}

function sinceOf(step: Step): string {
  return new Date(Date.now() - ranges[step] * 1000).toISOString()
}
