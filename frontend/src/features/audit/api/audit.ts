import { useInfiniteQuery } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'
import { cursorOf } from '@/lib/api/cursor'

export type AuditEntry = components['schemas']['AuditEntry']

export function useAudit(filter: Record<string, string>) {
  return useInfiniteQuery({
    queryKey: ['audit', filter],
    initialPageParam: '',
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET('/api/v1/audit/', {
          params: { query: { ...filter, ...(pageParam && { cursor: pageParam }) } as Record<string, never> },
        }),
      ),
    getNextPageParam: (page) => cursorOf(page.next),
  })
}
