import { Code, Stack, Table, Text, Title } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { useReplay, type Config } from '@/features/pipelines/api/pipelines'

/** How what the draft makes of a received message differs from what was delivered of it. */
export function PlaygroundReplay({ pipeline, message, config }: { pipeline: string; message: string; config: Config }) {
  const { t } = useTranslation()
  const replay = useReplay(pipeline, message, config)
  if (!replay.data) return null
  const { delivered, differences } = replay.data
  return (
    <Stack gap={4} aria-live="polite">
      <Title order={4} size="h6">
        {t('playground.compared')}
      </Title>
      {!delivered.length && <Text size="sm">{t('playground.notRetained')}</Text>}
      {delivered.length > 0 && !differences.length && <Text size="sm">{t('changes.none')}</Text>}
      {differences.length > 0 && (
        <Table aria-label={t('playground.compared')}>
          <Table.Tbody>
            {differences.map((difference) => (
              <Table.Tr key={`${difference.message} ${difference.path}`}>
                <Table.Td>{t(`playground.changes.${difference.change}`)}</Table.Td>
                <Table.Td style={{ overflowWrap: 'anywhere' }}>{difference.path || t('playground.wholeMessage')}</Table.Td>
                <Table.Td style={{ overflowWrap: 'anywhere' }}>{difference.before && <Code>{difference.before}</Code>}</Table.Td>
                <Table.Td style={{ overflowWrap: 'anywhere' }}>{difference.after && <Code>{difference.after}</Code>}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Stack>
  )
}
