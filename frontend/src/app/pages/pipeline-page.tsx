import { Skeleton } from '@mantine/core'
import { lazy, Suspense } from 'react'

import { PipelinePage } from '@/features/pipelines/components/pipeline-page'

const outputs = () => import('@/features/deliveries/components/pipeline-outputs')
const PipelineOutput = lazy(async () => ({ default: (await outputs()).PipelineOutput }))
const PipelineOutputs = lazy(async () => ({ default: (await outputs()).PipelineOutputs }))
const PipelineExports = lazy(async () => ({ default: (await import('@/features/exports/components/pipeline-exports')).PipelineExports }))

/** One pipeline, with what is known of its deliveries. */
export function ComposedPipelinePage() {
  return (
    <PipelinePage
      output={(pipeline, name) => (
        <Suspense fallback={<Skeleton height={120} />}>
          <PipelineOutput pipeline={pipeline.id} name={name} />
        </Suspense>
      )}
      outputs={(pipeline) => (
        <Suspense fallback={<Skeleton height={320} />}>
          <PipelineOutputs pipeline={pipeline.id} />
          <PipelineExports pipeline={pipeline.id} />
        </Suspense>
      )}
    />
  )
}
