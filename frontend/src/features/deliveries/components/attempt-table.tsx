import { Anchor, Code, Text } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { DataTable, type Column } from '@/components/data-table'
import { NameAndPart } from '@/components/name-and-part'
import { Time } from '@/components/time'
import type { Attempt } from '@/features/deliveries/api/deliveries'
import { usePipelineName } from '@/lib/queries/pipelines'
import { reasonLabel } from '@/lib/reasons'

/** Tries, newest first. `brief` leaves out whose they are. */
export function AttemptTable({ rows, brief = false }: { rows: Attempt[]; brief?: boolean }) {
  const { t, i18n } = useTranslation()
  const nameOf = usePipelineName()
  const milliseconds = new Intl.NumberFormat(i18n.language, {
    style: 'unit',
    unit: 'millisecond',
    maximumFractionDigits: 0,
  })
  const whose: Column<Attempt>[] = [
    {
      name: 'pipeline',
      title: t('deliveries.pipeline'),
      cell: ({ pipeline, output }) => <NameAndPart name={nameOf(pipeline)} part={output} />,
      isLead: true,
    },
  ]
  const message: Column<Attempt>[] = [
    {
      name: 'message',
      title: t('deliveries.messageId'),
      cell: ({ message_id }) => (
        <Anchor component={Link} to={`/messages?message_id=${encodeURIComponent(message_id)}`} ff="monospace" size="xs">
          {message_id}
        </Anchor>
      ),
      isWide: true,
    },
  ]
  return (
    <DataTable
      label={t('attempts.title')}
      isFramed={!brief}
      rows={rows}
      keyOf={({ id }) => id}
      columns={[
        { name: 'at', title: t('pipelines.at'), cell: ({ at }) => <Time at={at} />, isStill: true },
        ...(brief ? [] : whose),
        {
          name: 'answer',
          title: t('attempts.answer'),
          isStill: true,
          cell: ({ reason, status }) => (
            <Text size="sm" c={reason ? 'red' : undefined}>
              {status || reasonLabel(t, reason)}
            </Text>
          ),
        },
        {
          name: 'took',
          title: t('attempts.took'),
          cell: (row) => milliseconds.format(row.milliseconds),
          isNumber: true,
          isStill: true,
        },
        {
          name: 'details',
          title: t('pipelines.message'),
          cell: ({ error, response }) => error || (response && <Code>{response.slice(0, 200)}</Code>) || '–',
          isWide: true,
        },
        ...(brief ? [] : message),
      ]}
    />
  )
}
