import { Button, Code, Drawer, Group, ScrollArea, Stack, Table, Text } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { useAttempts, useDeadLetter } from '@/features/deliveries/api/deliveries'
import { AttemptTable } from '@/features/deliveries/components/attempt-table'
import { BulkDialog, type BulkAction } from '@/features/deliveries/components/bulk-dialog'
import { StateBadge } from '@/features/deliveries/components/dead-letters-page'
import { usePipelineName } from '@/features/deliveries/components/filter-bar'
import { bytes } from '@/lib/format'

/** One dead letter beside the list: cause, payload and every try. */
export function DeadLetterDrawer({ id, onClose }: { id: string | null; onClose: () => void }) {
  const { t } = useTranslation()
  return (
    <Drawer opened={id !== null} onClose={onClose} position="right" size="xl" title={t('deadLetters.one')}>
      {id && <Detail id={id} />}
    </Drawer>
  )
}

function Detail({ id }: { id: string }) {
  const { t, i18n } = useTranslation()
  const letter = useDeadLetter(id)
  const nameOf = usePipelineName()
  const [action, setAction] = useState<BulkAction | null>(null)
  return (
    <Loaded query={letter}>
      {(found) => {
        const facts: [string, React.ReactNode][] = [
          [t('common.status'), <StateBadge key="state" state={found.state} />],
          [t('pipelines.reason'), t(`reasons.${found.reason}`, { defaultValue: found.reason })],
          [t('pipelines.message'), found.error],
          [t('deliveries.pipeline'), nameOf(found.pipeline)],
          [t('pipelines.output'), found.output || '–'],
          [t('pipelines.stage'), found.stage],
          [t('pipelines.version'), found.version],
          [t('deliveries.messageId'), <Code key="id">{found.message_id || '–'}</Code>],
          [t('deadLetters.firstAt'), <Time key="first" at={found.first_at} />],
          [t('deadLetters.attempts'), t('deadLetters.attemptsAnd', { attempts: found.attempts, count: found.redeliveries })],
          [t('deadLetters.next'), found.due_at ? <Time key="due" at={found.due_at} /> : t('deadLetters.byHand')],
          ...(found.closed_by || found.closed_why
            ? [[t('deadLetters.closed'), `${found.closed_by} ${found.closed_why}`] as [string, string]]
            : []),
        ]
        return (
          <Stack>
            {found.state === 'waiting' && (
              <Group gap="xs">
                <Button size="xs" onClick={() => setAction('redrive')}>
                  {t('deadLetters.redriveOne')}
                </Button>
                <Button size="xs" variant="default" onClick={() => setAction('discard')}>
                  {t('deadLetters.discardOne')}
                </Button>
              </Group>
            )}
            <Table variant="vertical" layout="fixed">
              <Table.Tbody>
                {facts.map(([label, value]) => (
                  <Table.Tr key={label}>
                    <Table.Th w={150}>{label}</Table.Th>
                    <Table.Td style={{ overflowWrap: 'anywhere' }}>{value}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
            <Text fw={600} size="sm">
              {t('deadLetters.payload', { size: bytes(found.body_bytes, i18n.language), type: found.content_type })}
            </Text>
            <ScrollArea.Autosize mah={280}>
              <Code block>{found.body_is_base64 ? found.body : pretty(found.body)}</Code>
            </ScrollArea.Autosize>
            {found.message_id && <Attempts messageId={found.message_id} output={found.output} />}
            {action && (
              <BulkDialog
                action={action}
                filter={{ ids: found.id }}
                onClose={() => setAction(null)}
                onDone={() => setAction(null)}
              />
            )}
          </Stack>
        )
      }}
    </Loaded>
  )
}

function Attempts({ messageId, output }: { messageId: string; output: string }) {
  const { t } = useTranslation()
  const attempts = useAttempts({ message_id: messageId, ...(output && { output }) })
  return (
    <>
      <Text fw={600} size="sm">
        {t('attempts.title')}
      </Text>
      <Loaded query={attempts}>
        {({ pages }) => <AttemptTable rows={pages.flatMap((page) => page.results)} brief />}
      </Loaded>
    </>
  )
}

function pretty(body: string): string {
  try {
    // Only re-indented where that keeps every number as it is.
    const shown = JSON.stringify(JSON.parse(body), null, 2)
    return shown.replace(/\s/g, '') === body.replace(/\s/g, '') ? shown : body
  } catch {
    return body
  }
}
