import { useQuery } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import { wayOf } from '@/features/messages/way'

/** Everything that is known of one message. */
export function useWay(messageId: string) {
  return useQuery({
    queryKey: ['messages', messageId],
    queryFn: async () => {
      const query = { message_id: messageId }
      const [attempts, letters, billed] = await Promise.all([
        dataOf(api.GET('/api/v1/attempts/', { params: { query } })),
        dataOf(api.GET('/api/v1/dead-letters/', { params: { query } })),
        dataOf(api.GET('/api/v1/usage/deliveries/', { params: { query } })),
      ])
      return wayOf(messageId, attempts.results, letters.results, billed)
    },
    enabled: messageId !== '',
    refetchInterval: 5000,
  })
}

export interface Wanted {
  search: string
  since: string
  until: string
}

interface Match {
  id: string
  pipeline: string | null
  output: string
  at: string
  /** Empty for what was delivered. */
  error: string
}

/** Messages by key, by a part of an error, or by time: from the dead letters and the log of attempts. */
export function useMatches({ search, since, until }: Wanted) {
  return useQuery({
    queryKey: ['messages', 'matches', search, since, until],
    queryFn: async () => {
      const time = { ...(since && { since }), ...(until && { until }) }
      const [letters, attempts] = await Promise.all([
        dataOf(api.GET('/api/v1/dead-letters/', { params: { query: { ...time, ...(search && { search }) } } })),
        search ? { results: [] } : dataOf(api.GET('/api/v1/attempts/', { params: { query: time } })),
      ])
      const matches = new Map<string, Match>()
      for (const { message_id: id, pipeline, output, at, error } of attempts.results) matches.set(id, { id, pipeline, output, at, error: error ?? '' })
      for (const { message_id: id, pipeline, output, first_at: at, error } of letters.results) if (id) matches.set(id, { id, pipeline, output, at, error })
      return [...matches.values()].sort((a, b) => b.at.localeCompare(a.at))
    },
    enabled: search !== '' || since !== '' || until !== '',
  })
}
