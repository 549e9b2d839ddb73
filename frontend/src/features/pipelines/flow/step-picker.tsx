import { useTranslation } from 'react-i18next'

import { Picker } from '@/components/picker'
import { usePipelineSchema } from '@/features/pipelines/api/pipelines'
import { useServerTexts } from '@/lib/texts'

import { choicesOf } from './part-schema'

/** By what a person wants to do; steps that are not named here stand in the last group. */
const groups = {
  fields: ['set', 'default', 'copy', 'rename', 'remove', 'keep'],
  values: ['expression', 'template', 'cast', 'map', 'timestamp', 'hash', 'mask', 'uuid'],
  shape: ['flatten', 'split', 'join', 'decode', 'encode'],
  messages: ['drop_unless', 'validate', 'deduplicate'],
  systems: ['call'],
} as const
type Group = keyof typeof groups | 'other'

const groupOf = (type: string): Group =>
  (Object.keys(groups) as (keyof typeof groups)[]).find((group) => (groups[group] as readonly string[]).includes(type)) ?? 'other'

interface Props {
  opened: boolean
  onClose: () => void
  onPick: (type: string) => void
}

/** Chooses a kind of step, by its purpose or by a search. */
export function StepPicker(props: Props) {
  const { t } = useTranslation()
  const text = useServerTexts()
  const schema = usePipelineSchema().data
  const steps = schema ? choicesOf(schema, 'transforms') : []
  const shown = ([...Object.keys(groups), 'other'] as Group[]).map((group) => ({
    label: t(`flow.groups.${group}`),
    choices: steps
      .filter(({ type }) => groupOf(type) === group)
      .map(({ type, title, description }) => ({ id: type, title: text(title), description: text(description) })),
  }))
  return <Picker {...props} title={t('flow.addStep')} search={t('flow.searchStep')} groups={shown} />
}
