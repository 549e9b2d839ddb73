import { GeneratorSwitch } from '@/features/demo/components/generator-switch'
import { PipelinesPage } from '@/features/pipelines/components/pipelines-page'

/** The pipelines; in a demo, with the switch of its messages. */
export function ComposedPipelinesPage() {
  return <PipelinesPage tools={<GeneratorSwitch />} />
}
