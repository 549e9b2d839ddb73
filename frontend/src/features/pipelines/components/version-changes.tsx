import { ChangeList, plain } from '@/components/change-list'
import { Loaded } from '@/components/states'
import { useVersion, useVersionChanges } from '@/features/pipelines/api/pipelines'
import { useFieldTitles } from '@/features/pipelines/flow/field-titles'
import { placeOfChange } from '@/features/pipelines/flow/parts'
import { useConnectors } from '@/lib/queries/connectors'
import type { Pipeline } from '@/lib/queries/pipelines'

interface Props {
  pipeline: Pipeline
  number: number
  since: number
}

/** What a version changed since another one, in the words of the forms. */
export function VersionChanges({ pipeline, number, since }: Props) {
  const changes = useVersionChanges(pipeline.id, number, since)
  const versions = [useVersion(pipeline.id, number), useVersion(pipeline.id, since)]
  const connectors = useConnectors().data?.rows ?? []
  const titleOf = useFieldTitles()
  const configs = versions.flatMap(({ data }) => data?.config ?? [])
  // What was removed has its place in the former version only.
  const nameOf = (path: string) => {
    for (const config of configs) {
      const place = placeOfChange(path, config)
      if (place !== undefined) return titleOf(config, place)
    }
    return path
  }
  const textOf = (value: unknown) =>
    connectors.reduce((text, { id, name }) => text.replaceAll(id, name), plain(value))
  return <Loaded query={changes}>{(differences) => <ChangeList changes={differences} nameOf={nameOf} textOf={textOf} />}</Loaded>
}
