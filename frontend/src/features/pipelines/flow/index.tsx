import { Skeleton } from '@mantine/core'
import { lazy, Suspense } from 'react'

import type { FlowProps } from './flow-graph'

const Graph = lazy(async () => ({ default: (await import('./flow-graph')).FlowGraph }))

/** The picture of a pipeline, whose library is loaded when the first one is shown. */
export function Flow(props: FlowProps) {
  return (
    <Suspense fallback={<Skeleton height={280} />}>
      <Graph {...props} />
    </Suspense>
  )
}
