import { useInfiniteQuery } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import { cursorOf } from '@/lib/api/cursor'
import type { components } from '@/lib/api/schema'

export type ChangeStream = components['schemas']['ChangeStream']

export function useChangeStreams() {
  return useInfiniteQuery({
    queryKey: ['change-streams'],
    initialPageParam: '',
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET('/api/v1/change-streams/', { params: { query: (pageParam ? { cursor: pageParam } : {}) as Record<string, never> } }),
      ),
    getNextPageParam: ({ next }) => cursorOf(next),
    refetchInterval: 5000,
  })
}
