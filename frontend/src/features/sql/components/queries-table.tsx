import { Badge, Text } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck, IconLoader } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import { ConfirmButton } from '@/components/confirm-button'
import { DataTable } from '@/components/data-table'
import { Empty, Loaded } from '@/components/states'
import { toastFailed } from '@/components/toasts'
import { useQueries, useTerminate, type RunningQuery } from '@/features/sql/api/sql'
import { bytes, count, perSecond } from '@/lib/format'
import { includes, useRole } from '@/lib/queries/session'

const looks: Record<string, { color: string; icon: typeof IconLoader }> = {
  RUNNING: { color: 'gray', icon: IconCircleCheck },
  STARTING: { color: 'yellow', icon: IconLoader },
  ERROR: { color: 'red', icon: IconAlertTriangle },
}

/** The queries that run, how fast, and how much they remember. */
export function QueriesTable() {
  const { t, i18n } = useTranslation()
  const queries = useQueries()
  const terminate = useTerminate()
  const role = useRole()
  const number = (value: number) => count(value, i18n.language)
  return (
    <Loaded query={queries}>
      {({ queries }) =>
        queries.length ? (
          <DataTable
            label={t('sql.tabs.queries')}
            rows={queries}
            keyOf={({ id }) => id}
            columns={[
              { name: 'id', title: t('sql.query'), cell: (query) => <Named query={query} />, isLead: true, isWide: true },
              { name: 'state', title: t('common.status'), cell: ({ state }) => <State state={state} /> },
              { name: 'rate', title: t('sql.rate'), isNumber: true, sortBy: (one) => one.rows_per_second, cell: (one) => perSecond(one.rows_per_second, i18n.language) },
              { name: 'behind', title: t('sql.waiting'), isNumber: true, sortBy: (one) => one.behind, cell: (one) => number(one.behind) },
              {
                name: 'state-size',
                title: t('sql.remembers'),
                isNumber: true,
                sortBy: (one) => one.state_bytes,
                cell: (one) => (one.state_rows ? t('sql.rowsAndBytes', { count: one.state_rows, bytes: bytes(one.state_bytes, i18n.language) }) : '–'),
              },
            ]}
            actions={
              includes(role, 'editor')
                ? ({ id, kind }) =>
                    kind !== 'pipeline' && (
                      <ConfirmButton
                        size="xs"
                        title={t('sql.terminateTitle', { id })}
                        text={t('sql.terminateText')}
                        onConfirm={() => terminate.mutate(id, { onError: toastFailed })}
                      >
                        {t('sql.terminate')}
                      </ConfirmButton>
                    )
                : undefined
            }
          />
        ) : (
          <Empty title={t('sql.noQueries')} hint={t('sql.noQueriesHint')} />
        )
      }
    </Loaded>
  )
}

function Named({ query: { id, kind, text, error, failures } }: { query: RunningQuery }) {
  const { t } = useTranslation()
  return (
    <>
      <Text size="sm" fw={600} style={{ overflowWrap: 'anywhere' }}>
        {id}
      </Text>
      <Text size="xs" c="dimmed">
        {t(`sql.kinds.${kind as 'persistent' | 'pipeline' | 'reading'}`)}
      </Text>
      <Text size="xs" ff="monospace" lineClamp={3} title={text} style={{ overflowWrap: 'anywhere' }}>
        {text}
      </Text>
      {error && (
        <Text size="xs" c="red" style={{ overflowWrap: 'anywhere' }}>
          {t('sql.failed', { count: failures })} {error}
        </Text>
      )}
    </>
  )
}

function State({ state }: { state: string }) {
  const { t } = useTranslation()
  const { color, icon: Icon } = looks[state] ?? { color: 'yellow', icon: IconLoader }
  return (
    <Badge color={color} variant="light" tt="none" leftSection={<Icon size={12} aria-hidden />}>
      {t(`sql.states.${state as 'RUNNING' | 'STARTING' | 'ERROR'}`)}
    </Badge>
  )
}
