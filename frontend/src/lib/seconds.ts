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
