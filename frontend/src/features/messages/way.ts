import type { components } from '@/lib/api/schema'

export type Attempt = components['schemas']['Attempt']
export type DeadLetter = components['schemas']['DeadLetter']
export type BilledDelivery = components['schemas']['BilledDelivery']

export type EventKind = 'accepted' | 'attempt' | 'failedAttempt' | 'deadLetter' | 'closed' | 'billed'

/** Something that happened to a message. */
export interface WayEvent {
  kind: EventKind
  /** Unix time in milliseconds. */
  at: number
  /** How long it took; nothing for a moment. */
  milliseconds?: number
  pipeline: string | null
  output: string
  attempt?: Attempt
  letter?: DeadLetter
}

/** When a message was accepted: its id says so, if Headrace or another maker of UUIDs of version 7 made it. */
export function acceptedAt(messageId: string): number | undefined {
  const hex = messageId.replaceAll('-', '')
  return /^[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/i.test(hex) ? parseInt(hex.slice(0, 12), 16) : undefined
}

/** Everything that is known of a message, in the order in which it happened. */
export function wayOf(messageId: string, attempts: Attempt[], letters: DeadLetter[], billed: BilledDelivery[]): WayEvent[] {
  const accepted = acceptedAt(messageId) ?? Math.min(...letters.map(({ received_at }) => Date.parse(received_at ?? '')))
  const pipeline = (attempts[0] ?? letters[0] ?? billed[0])?.pipeline ?? null
  const known = attempts.length + letters.length + billed.length > 0
  const events: WayEvent[] = [
    ...(known && Number.isFinite(accepted) ? [{ kind: 'accepted' as const, at: accepted, pipeline, output: '' }] : []),
    ...attempts.map((attempt): WayEvent => ({
      kind: attempt.reason ? 'failedAttempt' : 'attempt',
      // It is logged when it ends.
      at: Date.parse(attempt.at) - attempt.milliseconds,
      milliseconds: attempt.milliseconds,
      pipeline: attempt.pipeline,
      output: attempt.output,
      attempt,
    })),
    ...letters.flatMap((letter): WayEvent[] => [
      { kind: 'deadLetter', at: Date.parse(letter.first_at), pipeline: letter.pipeline, output: letter.output, letter },
      ...(letter.closed_at
        ? [{ kind: 'closed' as const, at: Date.parse(letter.closed_at), pipeline: letter.pipeline, output: letter.output, letter }]
        : []),
    ]),
    ...billed.map((delivery): WayEvent => ({ kind: 'billed', at: Date.parse(delivery.at), pipeline: delivery.pipeline, output: delivery.output })),
  ]
  return events.sort((a, b) => a.at - b.at)
}

/** Where an event's bar begins and how long it is, in per cent of the whole way. */
export function barOf(event: WayEvent, way: WayEvent[]): { left: number; width: number } {
  const first = way[0]?.at ?? event.at
  const end = Math.max(...way.map(({ at, milliseconds = 0 }) => at + milliseconds))
  const whole = Math.max(end - first, 1)
  return { left: ((event.at - first) / whole) * 100, width: ((event.milliseconds ?? 0) / whole) * 100 }
}
