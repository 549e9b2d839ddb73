import { Alert, Button, Center, Skeleton, Stack, Text } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import { useState, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import { mayPass, sentence } from '@/lib/api/problem'

export interface Query<T> {
  data: T | undefined
  error: unknown
  refetch: () => unknown
}

/** Loading, failed or loaded: one look of each for the whole console. */
export function Loaded<T>({ query, children }: { query: Query<T>; children: (data: T) => ReactNode }) {
  const { t } = useTranslation()
  // Asked again, a query without data has no error until the answer has come: what is wrong is shown meanwhile.
  const [failure, setFailure] = useState<unknown>(null)
  const error = query.error ?? (mayPass(failure) ? failure : null)
  // A query that has data keeps them when asking again fails: such an error is none of a query without data.
  const latest = query.data === undefined ? (query.error ?? failure) : null
  if (latest !== failure) setFailure(latest)
  if (query.data !== undefined) return children(query.data)
  if (error) {
    return (
      <Alert color="red" icon={<IconAlertTriangle />} title={t('common.failed')}>
        <Text size="sm" mb="sm">
          {sentence(error)}
        </Text>
        <Button size="xs" variant="default" onClick={() => void query.refetch()}>
          {t('common.retry')}
        </Button>
      </Alert>
    )
  }
  return (
    <Stack role="group" aria-busy aria-label={t('common.loading')}>
      {[0, 1, 2, 3].map((row) => (
        <Skeleton key={row} height={44} />
      ))}
    </Stack>
  )
}

/** What will be here, and the action that fills it. */
export function Empty({ title, hint, action }: { title: string; hint?: string; action?: ReactNode }) {
  return (
    <Center mih={220}>
      <Stack align="center" gap="xs">
        <Text fw={600}>{title}</Text>
        {hint && (
          <Text c="dimmed" ta="center" maw={420}>
            {hint}
          </Text>
        )}
        {action}
      </Stack>
    </Center>
  )
}
