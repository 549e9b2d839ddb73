import { useMemo } from 'react'

import { useMetrics } from '@/features/pipelines/api/pipelines'
import { useLiveCounts } from '@/lib/live'
import { mergedSeconds, totalsWith, type Seconds } from '@/lib/seconds'

/** A pipeline's counts of the last minutes, loaded once and then kept fresh by the live socket, and its totals with them. */
export function useSeconds(id: string): { seconds: Seconds; now: number; last24: Record<string, number> | undefined } {
  const reading = useMetrics(id).data
  const { counts, now } = useLiveCounts([id])
  const live = counts[id]
  return useMemo(() => {
    const seconds = mergedSeconds(reading?.by_second ?? {}, live ?? {})
    return { seconds, now, last24: reading && totalsWith(seconds, reading) }
  }, [reading, live, now])
}
