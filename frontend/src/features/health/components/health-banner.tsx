import { Alert } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import { useHealth } from '@/lib/queries/health'

/** Says which part of the installation does not answer; nothing while all do. */
export function HealthBanner() {
  const { t } = useTranslation()
  const health = useHealth()
  const troubles = health.error
    ? [t('health.unreachable')]
    : Object.values(health.data ?? {}).filter((state) => state !== 'ok')
  if (!troubles.length) return null
  return (
    <Alert color="red" icon={<IconAlertTriangle />} title={t('health.title')} mb="md" role="alert">
      {troubles.join(' ')}
    </Alert>
  )
}
