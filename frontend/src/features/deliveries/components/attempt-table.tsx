import { Code, Table, Text } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { Time } from '@/components/time'
import type { Attempt } from '@/features/deliveries/api/deliveries'
import { usePipelineName } from '@/lib/queries/pipelines'
import { reasonLabel } from '@/lib/reasons'

/** Tries, newest first. `brief` leaves out whose they are. */
export function AttemptTable({ rows, brief = false }: { rows: Attempt[]; brief?: boolean }) {
  const { t, i18n } = useTranslation()
  const nameOf = usePipelineName()
  if (!rows.length) {
    return (
      <Text size="sm" c="dimmed">
        {t('attempts.empty')}
      </Text>
    )
  }
  const milliseconds = new Intl.NumberFormat(i18n.language, {
    style: 'unit',
    unit: 'millisecond',
    maximumFractionDigits: 0,
  })
  return (
    <Table.ScrollContainer minWidth={brief ? 480 : 820}>
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('pipelines.at')}</Table.Th>
            {!brief && <Table.Th>{t('deliveries.pipeline')}</Table.Th>}
            <Table.Th>{t('attempts.answer')}</Table.Th>
            <Table.Th ta="right">{t('attempts.took')}</Table.Th>
            <Table.Th>{t('pipelines.message')}</Table.Th>
            {!brief && <Table.Th>{t('deliveries.messageId')}</Table.Th>}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row) => (
            <Table.Tr key={row.id}>
              <Table.Td>
                <Time at={row.at} />
              </Table.Td>
              {!brief && (
                <Table.Td>
                  {nameOf(row.pipeline)}
                  <Text size="xs" c="dimmed">
                    {row.output}
                  </Text>
                </Table.Td>
              )}
              <Table.Td>
                <Text size="sm" c={row.reason ? 'red' : undefined}>
                  {row.status || reasonLabel(t, row.reason)}
                </Text>
              </Table.Td>
              <Table.Td ta="right">{milliseconds.format(row.milliseconds)}</Table.Td>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>
                {row.error || (row.response && <Code>{row.response.slice(0, 200)}</Code>) || '–'}
              </Table.Td>
              {!brief && (
                <Table.Td>
                  <Code>{row.message_id}</Code>
                </Table.Td>
              )}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  )
}
