import { Badge } from '@mantine/core'
import { IconAlertTriangle, IconArchive, IconCircleCheck, IconClock, IconLoader } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import type { DeadLetter } from '@/features/deliveries/api/deliveries'

const looks = {
  waiting: { color: 'yellow', icon: IconClock },
  redelivering: { color: 'yellow', icon: IconLoader },
  delivered: { color: 'green', icon: IconCircleCheck },
  discarded: { color: 'gray', icon: IconArchive },
  expired: { color: 'red', icon: IconAlertTriangle },
}

export function StateBadge({ state }: { state: DeadLetter['state'] }) {
  const { t } = useTranslation()
  const { color, icon: Icon } = looks[state]
  return (
    <Badge color={color} variant="light" tt="none" miw="max-content" leftSection={<Icon size={12} aria-hidden />}>
      {t(`deadLetters.state.${state}`)}
    </Badge>
  )
}
