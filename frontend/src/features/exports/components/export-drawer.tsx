import { Drawer, Skeleton } from '@mantine/core'
import { lazy, Suspense } from 'react'
import { useTranslation } from 'react-i18next'

const Details = lazy(async () => ({ default: (await import('@/features/exports/components/export-details')).ExportDetails }))

/** One file beside the list. */
export function ExportDrawer({ id, onClose }: { id: string | null; onClose: () => void }) {
  const { t } = useTranslation()
  return (
    <Drawer opened={id !== null} onClose={onClose} position="right" size="xl" title={t('exports.one')}>
      <Suspense fallback={<Skeleton height={240} />}>{id && <Details id={id} />}</Suspense>
    </Drawer>
  )
}
