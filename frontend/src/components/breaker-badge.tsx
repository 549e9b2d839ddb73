import { Badge } from '@mantine/core'
import { IconCircleCheck, IconCircleX, IconHelpCircle } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import type { components } from '@/lib/api/schema'

const looks = {
  closed: { color: 'gray', icon: IconCircleCheck },
  half_open: { color: 'yellow', icon: IconHelpCircle },
  open: { color: 'red', icon: IconCircleX },
}

export function BreakerBadge({ state }: { state: components['schemas']['Breaker']['state'] }) {
  const { t } = useTranslation()
  const { color, icon: Icon } = looks[state]
  return (
    <Badge color={color} variant="light" tt="none" miw="max-content" leftSection={<Icon size={12} aria-hidden />}>
      {t(`outputs.breaker.${state}`)}
    </Badge>
  )
}
