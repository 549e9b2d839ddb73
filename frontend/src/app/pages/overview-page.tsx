import { Button, Group } from '@mantine/core'
import { IconRocket } from '@tabler/icons-react'
import { lazy } from 'react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { Page } from '@/components/page'
import { Empty } from '@/components/states'
import { GeneratorSwitch } from '@/features/demo/components/generator-switch'
import { OverviewPage } from '@/features/overview/components/overview-page'
import { useMay } from '@/lib/queries/session'

const GuidePage = lazy(async () => ({ default: (await import('@/features/guide/components/guide-page')).GuidePage }))

/** The first page; where nothing flows yet, the guide to the first message for those who may follow it. */
export function ComposedOverviewPage() {
  return <OverviewPage guide={useMay('editor') ? <GuidePage /> : <NothingYet />} tools={<Tools />} />
}

function NothingYet() {
  const { t } = useTranslation()
  return (
    <Page title={t('overview.title')}>
      <Empty title={t('overview.nothingYet')} hint={t('overview.nothingYetHint')} />
    </Page>
  )
}

function Tools() {
  const { t } = useTranslation()
  if (!useMay('editor')) return null
  return (
    <Group gap="md">
      <GeneratorSwitch />
      <Button variant="default" component={Link} to="/start" leftSection={<IconRocket size={16} />}>
        {t('guide.again')}
      </Button>
    </Group>
  )
}
