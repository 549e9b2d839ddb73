import type { Condition } from '@/lib/queries/conditions'
import type { Pipeline } from '@/lib/queries/pipelines'

type OpenBreaker = Condition['breakers'][number]

/** Why a pipeline needs somebody. */
export type Need = { pipeline: Pipeline } & (
  | { kind: 'failed'; cause: string }
  | { kind: 'breaker'; opened: OpenBreaker }
  | { kind: 'deadLetters'; condition: Condition; reason: string }
  | { kind: 'endangered'; cause: string }
)

const order: Need['kind'][] = ['failed', 'breaker', 'endangered', 'deadLetters']

/** Everything that needs somebody, the worst first. */
export function needsOf(pipelines: Pipeline[], conditions: Map<string, Condition>): Need[] {
  return pipelines
    .flatMap((pipeline) => needsOfOne(pipeline, conditions.get(pipeline.id)))
    .sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind))
}

function needsOfOne(pipeline: Pipeline, condition: Condition | undefined): Need[] {
  const needs: Need[] = []
  const unprepared = pipeline.provisioning?.state === 'failed' ? pipeline.provisioning.cause : ''
  const cause = pipeline.failure || unprepared || pipeline.draft_failure
  if (cause) needs.push({ pipeline, kind: 'failed', cause })
  for (const warning of pipeline.warnings) needs.push({ pipeline, kind: 'endangered', cause: warning })
  for (const opened of condition?.breakers ?? []) needs.push({ pipeline, kind: 'breaker', opened })
  if (condition?.dead_letters) needs.push({ pipeline, kind: 'deadLetters', condition, reason: causeOf(condition) })
  return needs
}

/** The most frequent reason; what an open breaker only held back says nothing of the cause. */
function causeOf({ reasons }: Condition): string {
  return (reasons.find(({ reason }) => reason !== 'breaker_open') ?? reasons[0])?.reason ?? ''
}
