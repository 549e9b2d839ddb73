import { Button, Group } from '@mantine/core'
import { IconRocket } from '@tabler/icons-react'
import { lazy } from 'react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { GeneratorSwitch } from '@/features/demo/components/generator-switch'
import { OverviewPage } from '@/features/overview/components/overview-page'
import { includes, useRole } from '@/lib/queries/session'

const GuidePage = lazy(async () => ({ default: (await import('@/features/guide/components/guide-page')).GuidePage }))

/** The first page; where nothing flows yet, the guide to the first message. */
export function ComposedOverviewPage() {
  return <OverviewPage guide={<GuidePage />} tools={<Tools />} />
}

function Tools() {
  const { t } = useTranslation()
  const role = useRole()
  return (
    <Group gap="md">
      <GeneratorSwitch />
      {includes(role, 'editor') && (
        <Button variant="default" component={Link} to="/start" leftSection={<IconRocket size={16} />}>
          {t('guide.again')}
        </Button>
      )}
    </Group>
  )
}
