import { Button, Group, Text } from '@mantine/core'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import { sentence } from '@/lib/api/problem'
import type { Listing } from '@/lib/queries/listing'

interface Props {
  query: { data: Listing<unknown> | undefined; isFetching: boolean; error: unknown; refetch: () => unknown }
  /** What there is to narrow the list down. */
  hint?: string
}

/** How much of a list is shown, where that is not all of it. */
export function ListExtent({ query: { data, isFetching, error, refetch }, hint = '' }: Props) {
  const { t } = useTranslation()
  if (!data?.hasMore) return null
  const shown = { shown: data.rows.length, count: data.count }
  if (isFetching) return <Note>{t('table.loaded', shown)}</Note>
  if (!error) return <Note>{[t('table.cut', shown), hint].filter(Boolean).join(' ')}</Note>
  return (
    <Group gap="sm" mb="sm">
      <Note>
        {t('table.cut', shown)} {sentence(error)}
      </Note>
      <Button size="compact-xs" variant="default" onClick={() => void refetch()}>
        {t('common.retry')}
      </Button>
    </Group>
  )
}

function Note({ children }: { children: ReactNode }) {
  return (
    <Text size="sm" c="dimmed" mb="xs" role="status">
      {children}
    </Text>
  )
}
