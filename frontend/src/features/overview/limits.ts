import type { LiveNews } from '@/lib/live-socket'
import type { Pipeline } from '@/lib/queries/pipelines'

type RateLimit = NonNullable<LiveNews['outputs'][string][string]['rate_limit']>

export interface OutputLimit {
  pipeline: Pipeline
  output: string
  limit: RateLimit
}

/** Every rate limit, those for which most messages wait first, then those with the fewest tokens. */
export function limitsOf(pipelines: Pipeline[], outputs: LiveNews['outputs']): OutputLimit[] {
  return pipelines
    .flatMap((pipeline) =>
      Object.entries(outputs[pipeline.id] ?? {}).flatMap(([output, { rate_limit: limit }]) => (limit ? [{ pipeline, output, limit }] : [])),
    )
    .sort((a, b) => b.limit.waiting - a.limit.waiting || a.limit.tokens - b.limit.tokens)
}
