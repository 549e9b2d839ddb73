import { Select, type SelectProps } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { usePipelines } from '@/lib/queries/pipelines'

const searchableFrom = 8

/** Chooses one of the workspace's pipelines by name, or none of them. */
export function PipelineSelect(props: Omit<SelectProps, 'data' | 'label'>) {
  const { t } = useTranslation()
  const pipelines = usePipelines()
  const names = pipelines.data?.map(({ id, name }) => ({ value: id, label: name })) ?? []
  return (
    <Select
      label={t('deliveries.pipeline')}
      placeholder={t('deliveries.any')}
      clearable
      searchable={names.length > searchableFrom}
      data={names}
      {...props}
    />
  )
}
