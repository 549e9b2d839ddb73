import { Anchor, Card, Group, Title } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { useExports } from '@/features/exports/api/exports'
import { ExportDrawer } from '@/features/exports/components/export-drawer'
import { ExportTable } from '@/features/exports/components/export-table'

const most = 5

/** The pipeline's latest files, if its outputs store any. */
export function PipelineExports({ pipeline }: { pipeline: string }) {
  const { t } = useTranslation()
  const query = useExports({ pipeline })
  const [shown, setShown] = useState<string | null>(null)
  const files = query.data?.pages[0]?.results.slice(0, most) ?? []
  if (!files.length) return null
  return (
    <Card withBorder mt="lg">
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h5">
          {t('exports.latest')}
        </Title>
        <Anchor size="sm" component={Link} to={`/exports?pipeline=${pipeline}`}>
          {t('exports.all')}
        </Anchor>
      </Group>
      <ExportTable files={files} onShow={setShown} />
      <ExportDrawer id={shown} onClose={() => setShown(null)} />
    </Card>
  )
}
