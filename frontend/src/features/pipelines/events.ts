import type { Part } from '@/features/pipelines/flow/parts'

const kinds = [
  'accepted',
  'transformed',
  'dropped',
  'diverted',
  'called',
  'cached',
  'unanswered',
  'delivered',
  'redelivered',
  'retried',
  'suppressed',
  'repeated',
  'offered',
  'matched',
] as const
type Kind = (typeof kinds)[number] | 'deadEvent'

/** What an event says happened: `output.erp.delivered` is "delivered". */
export function eventName(event: string): Kind {
  return kinds.find((known) => known === event.split('.').at(-1)) ?? 'deadEvent'
}

/** Where it happened: a stage, or one output or external call of it. */
export function eventPlace(event: string): { kind: string; name?: string } {
  const parts = event.split('.')
  return { kind: parts[0] ?? '', name: parts.length > 2 ? parts.slice(1, -1).join('.') : undefined }
}

/** As the data plane counts steps: from 1. */
export const stepNumber = ({ path }: Part) => Number(path.split('.')[1]) + 1

/** What flows through the steps, per second: what reaches each of them, and what it drops or fails on. */
export function stepRates(rates: Record<string, number>, into: number, steps: number): { reaching: number; dropped: number; failing: number }[] {
  let reaching = into
  return Array.from({ length: steps }, (_, index) => {
    const dropped = rates[`step.${index + 1}.dropped`] ?? 0
    const failing = rates[`step.${index + 1}.dead`] ?? 0
    const step = { reaching, dropped, failing }
    reaching = Math.max(0, reaching - dropped - failing)
    return step
  })
}

/** The events of a part among those given; without one, of all steps together. */
export function eventsOf(part: Part | undefined, events: string[]): string[] {
  const prefix = prefixOf(part)
  return events.filter((event) => prefix.some((begin) => event.startsWith(begin))).sort()
}

function prefixOf(part: Part | undefined): string[] {
  if (!part) return ['adapting.']
  if (part.kind === 'input') return ['input.', 'filtering.']
  if (part.kind === 'output') return [`output.${String(part.value.name)}.`]
  if (part.kind !== 'step') return []
  const step = `step.${stepNumber(part)}.`
  return part.value.type === 'call' ? [`api.${String(part.value.name)}.`, step] : [step]
}
