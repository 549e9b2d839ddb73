import { Select, type SelectProps } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { usePipelineChoices } from '@/lib/queries/pipelines'

const searchableFrom = 8

/** Chooses one of the workspace's pipelines by name, or none of them. */
export function PipelineSelect({ value, ...props }: Omit<SelectProps, 'data' | 'label'>) {
  const { t } = useTranslation()
  const [typed, setTyped] = useState('')
  const pipelines = usePipelineChoices(typed)
  const names = pipelines.data?.rows.map(({ id, name }) => ({ value: id, label: name })) ?? []
  // One that is not among them, such as one that was deleted, is named instead of looking like no choice.
  if (value && !pipelines.isFetching && !names.some((known) => known.value === value)) names.push({ value, label: value })
  return (
    <Select
      label={t('deliveries.pipeline')}
      placeholder={t('deliveries.any')}
      clearable
      searchable={names.length > searchableFrom}
      onSearchChange={setTyped}
      data={names}
      value={value}
      {...props}
    />
  )
}
