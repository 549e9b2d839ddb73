/** Round numbers and times for the axes of a chart. */

const roundSteps = [1, 2, 2.5, 5, 10]

/** Values from zero to the first round one that is not below `most`, in about `intervals` equal steps. */
export function valueTicks(most: number, intervals: number): number[] {
  const rough = (most || 1) / intervals
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = (roundSteps.find((round) => round * power >= rough * (1 - 1e-9)) ?? 10) * power
  return Array.from({ length: Math.max(Math.ceil(most / step - 1e-9), 1) + 1 }, (_, index) => index * step)
}

const minute = 60
const hour = 60 * minute
export const day = 24 * hour
const timeSteps = [15, 30, minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute, hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 7 * day]

/**
 * Round moments from `first` to `last`, in seconds, at most `most` of them, and the step between them. `offset` is how
 * far the reader's clock is ahead of UTC: what is round in one zone is not in all.
 */
export function timeTicks(first: number, last: number, most: number, offset: number): { step: number; ticks: number[] } {
  const step = timeSteps.find((candidate) => (last - first) / candidate <= most) ?? 30 * day
  const start = Math.ceil((first + offset) / step) * step - offset
  return { step, ticks: Array.from({ length: Math.max(0, Math.floor((last - start) / step) + 1) }, (_, index) => start + index * step) }
}

/** How far a zone's clock is ahead of UTC at a moment, in seconds. */
export function zoneOffset(at: Date, timeZone: string): number {
  const parts = new Intl.DateTimeFormat('en-US', { timeZone, hourCycle: 'h23', year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric', second: 'numeric' }).formatToParts(at)
  const of = (type: string) => Number(parts.find((part) => part.type === type)?.value)
  return Math.round((Date.UTC(of('year'), of('month') - 1, of('day'), of('hour'), of('minute'), of('second')) - at.getTime()) / 1000)
}

/** The parts of a line between its gaps. */
export function runsOf<T>(points: T[], isKnown: (point: T) => boolean): T[][] {
  const runs: T[][] = [[]]
  for (const point of points) {
    if (isKnown(point)) runs[runs.length - 1]?.push(point)
    else runs.push([])
  }
  return runs.filter((run) => run.length > 0)
}

/** Places for labels that want to stand at these heights, each at least `distance` below the one above it. */
export function spread(heights: number[], distance: number, bottom: number): number[] {
  const order = heights.map((height, index) => ({ height, index })).sort((a, b) => a.height - b.height)
  let above = -Infinity
  for (const one of order) above = one.height = Math.max(one.height, above + distance)
  let below = bottom + distance
  for (const one of order.reverse()) below = one.height = Math.min(one.height, below - distance)
  return order.sort((a, b) => a.index - b.index).map(({ height }) => height)
}
