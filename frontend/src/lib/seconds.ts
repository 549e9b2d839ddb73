/** Counts by Unix second, then by event. */
export type Seconds = Record<string, Record<string, number>>

/** Both together. Within a second counts only grow, so the larger one is the newer: nothing goes back. */
export function mergedSeconds(one: Seconds, other: Seconds): Seconds {
  const merged: Seconds = { ...one }
  for (const [second, counts] of Object.entries(other)) {
    const known = merged[second]
    merged[second] = known ? largest(known, counts) : counts
  }
  return merged
}

function largest(one: Record<string, number>, other: Record<string, number>): Record<string, number> {
  const counts = { ...one }
  for (const [event, n] of Object.entries(other)) counts[event] = Math.max(counts[event] ?? 0, n)
  return counts
}

/** Counts of one moment: totals by event, and those of the seconds from `since` on, which the totals contain. */
export interface Reading {
  since: number
  last_24_hours: Record<string, number>
  by_second: Seconds
}

/** The totals of a reading with what newer counts of its seconds add, so that they are of the same moment as these. */
export function totalsWith(seconds: Seconds, { since, last_24_hours: last24, by_second: bySecond }: Reading): Record<string, number> {
  const totals = { ...last24 }
  for (const [second, counts] of Object.entries(seconds)) {
    if (Number(second) < since) continue
    for (const [event, n] of Object.entries(counts)) totals[event] = (totals[event] ?? 0) + n - (bySecond[second]?.[event] ?? 0)
  }
  return totals
}
