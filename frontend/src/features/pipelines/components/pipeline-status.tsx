import { Badge } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck, IconLoader, IconPencil, IconPlayerPause } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import type { Pipeline } from '@/lib/queries/pipelines'

export function PipelineStatus({ pipeline }: { pipeline: Pipeline }) {
  const { t } = useTranslation()
  const [color, Icon, label] =
    pipeline.provisioning?.state === 'provisioning'
      ? (['blue', IconLoader, t('pipelines.provisioning')] as const)
      : pipeline.provisioning && pipeline.published_version === null
      ? (['red', IconAlertTriangle, t('pipelines.failed')] as const)
      : pipeline.published_version === null
      ? (['gray', IconPencil, t('pipelines.draft')] as const)
      : pipeline.paused
        ? (['yellow', IconPlayerPause, t('pipelines.paused')] as const)
        : pipeline.failure
          ? (['red', IconAlertTriangle, t('pipelines.failed')] as const)
          : (['gray', IconCircleCheck, t('pipelines.accepting')] as const)
  return (
    <Badge color={color} variant="light" tt="none" leftSection={<Icon size={12} aria-hidden />}>
      {label}
    </Badge>
  )
}
