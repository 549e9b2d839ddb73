import { useMemo } from 'react'

import { useMetrics } from '@/features/pipelines/api/pipelines'
import { useLiveCounts } from '@/lib/live'
import { mergedSeconds, type Seconds } from '@/lib/seconds'

/** A pipeline's counts of the last minutes: loaded once, then kept fresh by the live socket. */
export function useSeconds(id: string): { seconds: Seconds; now: number; last24: Record<string, number> | undefined } {
  const metrics = useMetrics(id)
  const { counts, now } = useLiveCounts([id])
  const live = counts[id]
  const seconds = useMemo(() => mergedSeconds(metrics.data?.by_second ?? {}, live ?? {}), [metrics.data, live])
  return { seconds, now, last24: metrics.data?.last_24_hours }
}
