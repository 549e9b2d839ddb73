import { Select } from '@mantine/core'
import type { WidgetProps } from '@rjsf/utils'
import { useTranslation } from 'react-i18next'

import { useServerTexts } from '@/lib/texts'

import { capabilitiesIn, offersAny } from './connector-use'
import { contextOf } from './context'

/** Chooses one of the workspace's connectors whose type can do what the place asks for. */
export function ConnectorWidget({ id, label, schema, value, required, rawErrors, options, registry, onChange }: WidgetProps) {
  const { t } = useTranslation()
  const text = useServerTexts()
  const { connectors = [], types = [] } = contextOf(registry)
  const byType = new Map(types.map((type) => [type.type, type]))
  const choices = connectors
    .filter((connector) => offersAny(byType.get(connector.type), capabilitiesIn(schema)))
    .map((connector) => ({
      value: connector.id,
      label: `${connector.name} (${text(byType.get(connector.type)?.title ?? connector.type)})`,
    }))
  const chosen = (value as string | undefined) ?? null
  // One that was deleted or no longer fits is named instead of looking like no choice.
  if (chosen && !choices.some((choice) => choice.value === chosen)) {
    choices.push({ value: chosen, label: t('connectors.unusable', { id: chosen }) })
  }
  return (
    <Select
      id={id}
      label={label}
      description={options.description}
      placeholder={t('connectors.choose')}
      nothingFoundMessage={t('connectors.noneFits')}
      withAsterisk={required}
      searchable
      clearable={!required}
      error={rawErrors?.join(' ')}
      data={choices}
      value={chosen}
      onChange={(next) => onChange(next ?? undefined)}
    />
  )
}
