/** What is chosen after one row was switched. */
export function toggled(chosen: Set<string>, key: string): Set<string> {
  const next = new Set(chosen)
  if (!next.delete(key)) next.add(key)
  return next
}

/** After all rows from the one that was switched last to this one became as this one does. */
export function toggledThrough(chosen: Set<string>, keys: string[], from: string, to: string): Set<string> {
  const [first, last] = [keys.indexOf(from), keys.indexOf(to)].sort((a, b) => a - b) as [number, number]
  if (first < 0) return toggled(chosen, to)
  const next = new Set(chosen)
  for (const key of keys.slice(first, last + 1)) {
    if (chosen.has(to)) next.delete(key)
    else next.add(key)
  }
  return next
}
