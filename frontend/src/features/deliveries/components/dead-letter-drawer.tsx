import { Drawer, Skeleton } from '@mantine/core'
import { lazy, Suspense } from 'react'
import { useTranslation } from 'react-i18next'

const Detail = lazy(async () => ({ default: (await import('@/features/deliveries/components/dead-letter-detail')).DeadLetterDetail }))

/** One dead letter beside the list. */
export function DeadLetterDrawer({ id, onClose }: { id: string | null; onClose: () => void }) {
  const { t } = useTranslation()
  return (
    <Drawer opened={id !== null} onClose={onClose} position="right" size="xl" title={t('deadLetters.one')}>
      <Suspense fallback={<Skeleton height={240} />}>{id && <Detail id={id} />}</Suspense>
    </Drawer>
  )
}
