import { useQuery } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'

const newest = 8

/** Counts of all pipelines of the workspace, in steps. */
export function useThroughput(hours: number) {
  return useQuery({
    queryKey: ['throughput', hours],
    queryFn: () => dataOf(api.GET('/api/v1/throughput/', { params: { query: { hours } } })),
    refetchInterval: 15_000,
  })
}

/** Messages that wait for each stage; null where it is unknown. */
export function useBacklogs() {
  return useQuery({
    queryKey: ['jobs'],
    queryFn: () => dataOf(api.GET('/api/v1/jobs/')),
    refetchInterval: 5000,
    select: (jobs) => jobs.flatMap(({ stages }) => stages.map(({ name, lag = null }) => ({ name, lag }))),
  })
}

/** The newest entries of the audit log, which only admins may read. */
export function useRecentChanges(isAllowed: boolean) {
  return useQuery({
    queryKey: ['audit', 'recent'],
    queryFn: async () => (await dataOf(api.GET('/api/v1/audit/'))).results.slice(0, newest),
    enabled: isAllowed,
    refetchInterval: 30_000,
  })
}
