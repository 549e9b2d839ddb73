import type { Condition } from '@/lib/queries/conditions'
import type { Pipeline } from '@/lib/queries/pipelines'

export type Health = 'provisioning' | 'failed' | 'draft' | 'paused' | 'breakerOpen' | 'probing' | 'deadLetters' | 'accepting'

const troubles: Health[] = ['failed', 'breakerOpen', 'probing', 'deadLetters']

/** Whether somebody has to look after it. */
export function isTroubled(pipeline: Pipeline, condition: Condition | undefined): boolean {
  return troubles.includes(healthOf(pipeline, condition))
}

/** The one word for how a pipeline is: the worst that is true of it. */
export function healthOf(pipeline: Pipeline, condition: Condition | undefined): Health {
  if (pipeline.provisioning?.state === 'provisioning') return 'provisioning'
  if (pipeline.published_version === null) return pipeline.provisioning || pipeline.draft_failure ? 'failed' : 'draft'
  if (pipeline.failure) return 'failed'
  const states = condition?.breakers.map(({ breaker }) => breaker.state) ?? []
  if (states.includes('open')) return 'breakerOpen'
  if (states.includes('half_open')) return 'probing'
  if (pipeline.paused) return 'paused'
  return condition?.dead_letters ? 'deadLetters' : 'accepting'
}
