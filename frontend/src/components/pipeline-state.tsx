import { Badge } from '@mantine/core'
import {
  IconAlertTriangle,
  IconArrowRight,
  IconCircleX,
  IconClock,
  IconHelpCircle,
  IconLoader,
  IconAlertCircle,
  IconPencil,
  IconPlayerPause,
  IconPlayerPlay,
  IconPlugConnectedX,
  IconUpload,
} from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import type { State } from '@/lib/pipeline-status'

const looks: Record<State, [string, typeof IconClock]> = {
  failing: ['red', IconAlertTriangle],
  blocked: ['red', IconCircleX],
  input_failing: ['red', IconPlugConnectedX],
  paused: ['yellow', IconPlayerPause],
  degraded: ['yellow', IconAlertCircle],
  starting: ['blue', IconPlayerPlay],
  provisioning: ['blue', IconLoader],
  draft: ['gray', IconPencil],
  unpublished: ['gray', IconUpload],
  unknown: ['yellow', IconHelpCircle],
  delivering: ['gray', IconArrowRight],
  idle: ['gray', IconClock],
}

/** The one word for how a pipeline is, or for a part of it. */
export function PipelineState({ state }: { state: State }) {
  const { t } = useTranslation()
  const [color, Icon] = looks[state]
  return (
    <Badge color={color} variant="light" tt="none" miw="max-content" leftSection={<Icon size={12} aria-hidden />}>
      {t(`pipelines.states.${state}`)}
    </Badge>
  )
}
