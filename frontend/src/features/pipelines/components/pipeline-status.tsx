import { Badge } from '@mantine/core'
import {
  IconAlertTriangle,
  IconCircleCheck,
  IconCircleX,
  IconHelpCircle,
  IconLoader,
  IconMailX,
  IconPencil,
  IconPlayerPause,
} from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import { healthOf } from '@/lib/pipeline-health'
import type { Condition } from '@/lib/queries/conditions'
import type { Pipeline } from '@/lib/queries/pipelines'

const looks = {
  provisioning: ['blue', IconLoader],
  failed: ['red', IconAlertTriangle],
  breakerOpen: ['red', IconCircleX],
  probing: ['yellow', IconHelpCircle],
  deadLetters: ['yellow', IconMailX],
  draft: ['gray', IconPencil],
  paused: ['yellow', IconPlayerPause],
  accepting: ['gray', IconCircleCheck],
} as const

export function PipelineStatus({ pipeline, condition }: { pipeline: Pipeline; condition: Condition | undefined }) {
  const { t } = useTranslation()
  const health = healthOf(pipeline, condition)
  const [color, Icon] = looks[health]
  return (
    <Badge color={color} variant="light" tt="none" miw="max-content" leftSection={<Icon size={12} aria-hidden />}>
      {t(`pipelines.health.${health}`, { count: condition?.dead_letters ?? 0 })}
    </Badge>
  )
}
