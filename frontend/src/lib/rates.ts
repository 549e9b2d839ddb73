import type { Seconds } from '@/lib/seconds'

/** Executors report once a second, so the newest seconds are incomplete. */
const settling = 2

export interface Point {
  second: number
  in: number
  delivered: number
  dead: number
  /** Messages that waited; null where that is not known. */
  waiting: number | null
}

const delivered = /^output\..+\.delivered$/
const dead = /^(output\..+|adapting|filtering|syndicating)\.dead$/
const redelivered = /^(output\..+|adapting|filtering|syndicating)\.redelivered$/

export function sumOf(counts: Record<string, number>, pattern: RegExp): number {
  return Object.entries(counts).reduce((sum, [event, n]) => (pattern.test(event) ? sum + n : sum), 0)
}

/** What came in: posted, or taken from other pipelines by a filter. */
export const accepted = (counts: Record<string, number>) =>
  (counts['input.accepted'] ?? 0) + (counts['filtering.matched'] ?? 0)
export const deliveredIn = (counts: Record<string, number>) => sumOf(counts, delivered)
export const deadIn = (counts: Record<string, number>) => sumOf(counts, dead)

/**
 * With one output, each accepted message is delivered, dropped, a dead letter, or still under way. A redelivered dead
 * letter has been counted as dead before.
 */
export const waitingIn = (counts: Record<string, number>) => {
  const came = accepted(counts) + sumOf(counts, redelivered)
  return Math.max(came - deliveredIn(counts) - deadIn(counts) - (counts['adapting.dropped'] ?? 0), 0)
}

/** One point a second up to now; seconds without counts are zero, because nothing happened in them. */
export function timeline(seconds: Seconds, now: number, length: number): Point[] {
  const last = now - settling
  return Array.from({ length }, (_, index) => {
    const second = last - length + 1 + index
    const counts = seconds[second] ?? {}
    return { second, in: accepted(counts), delivered: deliveredIn(counts), dead: deadIn(counts), waiting: null }
  })
}

export interface Step {
  at: number
  seconds: number
  counts: Record<string, number>
  waiting: number | null
}

/**
 * One point a step over the last `hours`, as rates per second; the newest is of the step that is complete.
 * The time before `bornAt`, when there was nothing to count, is left out. In a step that is missing nothing happened,
 * so that as many messages wait as before; a step in which any waited is never missing, unless it is not known.
 */
export function historyTimeline(steps: Step[], now: number, hours: number, bornAt: Date): Point[] {
  const length = steps[0]?.seconds
  if (length === undefined) return []
  const byTime = new Map(steps.map((step) => [step.at, step]))
  const last = Math.max(...byTime.keys())
  const first = Math.floor(Math.max(now - hours * 3600, bornAt.getTime() / 1000) / length) * length
  let before: number | null = null
  return Array.from({ length: Math.max(0, (last - first) / length + 1) }, (_, index) => {
    const second = first + index * length
    const step = byTime.get(second)
    const counts = step?.counts ?? {}
    const waiting: number | null = step ? step.waiting : before === 0 ? 0 : null
    before = waiting
    return {
      second,
      in: accepted(counts) / length,
      delivered: deliveredIn(counts) / length,
      dead: deadIn(counts) / length,
      waiting,
    }
  })
}

/** Mean per second of an event over the last `window` settled seconds. */
export function ratesByEvent(seconds: Seconds, now: number, window: number): Record<string, number> {
  const totals: Record<string, number> = {}
  for (let second = now - settling - window + 1; second <= now - settling; second++) {
    for (const [event, n] of Object.entries(seconds[second] ?? {})) totals[event] = (totals[event] ?? 0) + n
  }
  return Object.fromEntries(Object.entries(totals).map(([event, n]) => [event, n / window]))
}
