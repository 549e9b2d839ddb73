import { PipelineOutputs } from '@/features/deliveries/components/pipeline-outputs'
import { PipelinePage } from '@/features/pipelines/components/pipeline-page'

/** One pipeline, with what is known of its deliveries. */
export function ComposedPipelinePage() {
  return <PipelinePage outputs={(pipeline) => <PipelineOutputs pipeline={pipeline.id} />} />
}
