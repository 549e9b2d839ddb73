import { Anchor, Button, Code, Group, Stack, Text } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { Facts, type Fact } from '@/components/facts'
import { Scrolled } from '@/components/scrolled'
import { Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { useAttempts, useDeadLetter } from '@/features/deliveries/api/deliveries'
import { AttemptTable } from '@/features/deliveries/components/attempt-table'
import { BulkDialog, type BulkAction } from '@/features/deliveries/components/bulk-dialog'
import { StateBadge } from '@/features/deliveries/components/state-badge'
import { bytes } from '@/lib/format'
import { reasonLabel } from '@/lib/reasons'
import { usePipelineName } from '@/lib/queries/pipelines'
import { useMay } from '@/lib/queries/session'

/** Leads to the whole way of a message. */
function MessageLink({ id }: { id: string }) {
  if (!id) return '–'
  return (
    <Anchor component={Link} to={`/messages?message_id=${encodeURIComponent(id)}`} ff="monospace" size="sm">
      {id}
    </Anchor>
  )
}

/** Cause, payload and every try of a dead letter. */
export function DeadLetterDetail({ id }: { id: string }) {
  const { t, i18n } = useTranslation()
  const query = useDeadLetter(id)
  const nameOf = usePipelineName()
  const [action, setAction] = useState<BulkAction | null>(null)
  const mayAct = useMay('operator')
  return (
    <Loaded query={query}>
      {(letter) => {
        const payload = t('deadLetters.payload', { size: bytes(letter.body_bytes, i18n.language), type: letter.content_type })
        const facts: Fact[] = [
          [t('common.status'), <StateBadge key="state" state={letter.state} />],
          [t('pipelines.reason'), reasonLabel(t, letter.reason)],
          [t('pipelines.message'), letter.error],
          [t('deliveries.pipeline'), nameOf(letter.pipeline)],
          [t('pipelines.output'), letter.output || '–'],
          [t('pipelines.stage'), letter.stage],
          [t('pipelines.version'), letter.version],
          [t('deliveries.messageId'), <MessageLink key="id" id={letter.message_id} />],
          [t('deadLetters.firstAt'), <Time key="first" at={letter.first_at} />],
          [t('deadLetters.attempts'), t('deadLetters.attemptsAnd', { attempts: letter.attempts, count: letter.redeliveries })],
          [t('deadLetters.next'), letter.due_at ? <Time key="due" at={letter.due_at} /> : t('deadLetters.byHand')],
          ...(letter.closed_by || letter.closed_why
            ? [[t('deadLetters.closed'), `${letter.closed_by} ${letter.closed_why}`] satisfies Fact]
            : []),
        ]
        return (
          <Stack>
            {mayAct && letter.state === 'waiting' && (
              <Group gap="xs">
                <Button size="xs" onClick={() => setAction('redrive')}>
                  {t('deadLetters.redriveOne')}
                </Button>
                <Button size="xs" variant="default" onClick={() => setAction('discard')}>
                  {t('deadLetters.discardOne')}
                </Button>
              </Group>
            )}
            <Facts facts={facts} />
            <Text fw={600} size="sm">
              {payload}
            </Text>
            <Scrolled mah={280} label={payload}>
              <Code block>{letter.body_is_base64 ? letter.body : pretty(letter.body)}</Code>
            </Scrolled>
            {letter.message_id && <Attempts messageId={letter.message_id} output={letter.output} />}
            {action && (
              <BulkDialog
                action={action}
                filter={{ ids: letter.id }}
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
        {({ pages }) =>
          pages.some(({ results }) => results.length) ? (
            <AttemptTable rows={pages.flatMap((page) => page.results)} brief />
          ) : (
            <Text size="sm" c="dimmed">
              {t('attempts.noneOfMessage')}
            </Text>
          )
        }
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
