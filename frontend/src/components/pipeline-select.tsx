import type { SelectProps } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { SearchedSelect } from '@/components/searched-select'
import { usePipelineChoices } from '@/lib/queries/pipelines'

/** Chooses one of the workspace's pipelines by name, or none of them. */
export function PipelineSelect(props: Omit<SelectProps, 'data' | 'label'>) {
  const { t } = useTranslation()
  return <SearchedSelect label={t('deliveries.pipeline')} placeholder={t('deliveries.any')} useChoices={usePipelineChoices} {...props} />
}
