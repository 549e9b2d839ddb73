import { Anchor, Button, Card, Group, List, SimpleGrid, Stack, Text, Title } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { ConfirmButton } from '@/components/confirm-button'
import { DataTable } from '@/components/data-table'
import { Scrolled } from '@/components/scrolled'
import { Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import { useOutputEvents } from '@/features/deliveries/api/deliveries'
import { BreakerBadge } from '@/components/breaker-badge'
import { Countdown } from '@/components/countdown'
import { count, duration } from '@/lib/format'
import { useLive, useLiveCounts, type OutputState } from '@/lib/live'
import { useOutputs, useSetBreaker, type Breaker, type Output } from '@/lib/queries/outputs'
import { useMay } from '@/lib/queries/session'

/** Where the pipeline delivers to, and whether each output is well. */
export function PipelineOutputs({ pipeline }: { pipeline: string }) {
  const query = useOutputs(pipeline)
  return (
    <Stack gap="lg">
      <Loaded query={query}>
        {(outputs) => (
          <SimpleGrid cols={{ base: 1, lg: 2 }}>
            {outputs.map((output) => (
              <OutputCard key={output.name} pipeline={pipeline} output={output} />
            ))}
          </SimpleGrid>
        )}
      </Loaded>
      <Events pipeline={pipeline} />
    </Stack>
  )
}

/** One of them, by its name; nothing for what is not published. */
export function PipelineOutput({ pipeline, name }: { pipeline: string; name: string }) {
  const output = useOutputs(pipeline).data?.find((candidate) => candidate.name === name)
  return output ? <OutputCard pipeline={pipeline} output={output} /> : null
}

function OutputCard({ pipeline, output }: { pipeline: string; output: Output }) {
  useLiveCounts([pipeline])
  const live = useLive().outputs[pipeline]?.[output.name]
  const { breaker, dead_letters: deadLetters } = live ?? output
  const { t, i18n } = useTranslation()
  const set = useSetBreaker()
  const mayAct = useMay('operator')
  const change = (open: boolean) => set.mutate({ pipeline, output: output.name, open }, { onError: toastFailed })
  const limit = output.rate_limit
  return (
    <Card withBorder>
      <Group justify="space-between" mb="xs">
        <Group gap="sm">
          <Text fw={600}>{output.name}</Text>
          <BreakerBadge state={breaker.state} />
        </Group>
        {!mayAct ? null : breaker.state === 'closed' ? (
          <ConfirmButton
            size="xs"
            title={t('outputs.openTitle', { name: output.name })}
            text={t('outputs.openText')}
            onConfirm={() => change(true)}
          >
            {t('outputs.open')}
          </ConfirmButton>
        ) : (
          <Button size="xs" variant="default" loading={set.isPending} onClick={() => change(false)}>
            {t('outputs.close')}
          </Button>
        )}
      </Group>
      <Stack gap={4}>
        {breaker.state === 'open' && breaker.until && (
          <Text size="sm" role="timer">
            {t('outputs.probeIn')} <Countdown until={breaker.until} />
          </Text>
        )}
        {live?.held_until && (
          <Text size="sm" role="timer" c="yellow">
            {t('outputs.heldFor')} <Countdown until={live.held_until} />
          </Text>
        )}
        {breaker.state !== 'closed' && breaker.cause && (
          <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
            {breaker.cause}
          </Text>
        )}
        <Text size="sm" c="dimmed">
          {limit
            ? t('outputs.limit', {
                messages: count(limit.messages, i18n.language),
                period: duration(limit.period_seconds, i18n.language),
                burst: count(limit.burst, i18n.language),
              })
            : t('outputs.noLimit')}
        </Text>
        {live?.rate_limit && <Tokens {...live.rate_limit} />}
        {deadLetters > 0 ? (
          <Anchor
            size="sm"
            component={Link}
            to={`/dead-letters?pipeline=${pipeline}&output=${encodeURIComponent(output.name)}&state=waiting`}
          >
            {t('outputs.deadLetters', { count: deadLetters })}
          </Anchor>
        ) : (
          <Text size="sm" c="dimmed">
            {t('outputs.noDeadLetters')}
          </Text>
        )}
        {breaker.last_errors.length > 0 && (
          <>
            <Text size="sm" fw={600} mt="xs">
              {t('outputs.lastErrors')}
            </Text>
            <List size="sm">
              {breaker.last_errors.map((error, index) => (
                <List.Item key={`${error.at}${index}`} style={{ overflowWrap: 'anywhere' }}>
                  <Time at={error.at} />: {error.message}
                </List.Item>
              ))}
            </List>
          </>
        )}
      </Stack>
    </Card>
  )
}

/** What a rate limit allows now, and what waits for it. */
function Tokens({ tokens, most, waiting }: NonNullable<OutputState['rate_limit']>) {
  const { t } = useTranslation()
  return (
    <Text size="sm" c={waiting ? 'yellow' : 'dimmed'}>
      {t('outputs.tokens', { count: tokens, most })}
      {' · '}
      {t('outputs.limited', { count: waiting })}
    </Text>
  )
}

function Events({ pipeline }: { pipeline: string }) {
  const { t } = useTranslation()
  const query = useOutputEvents(pipeline)
  return (
    <Card withBorder>
      <Title order={2} size="h5" mb="sm">
        {t('outputs.events')}
      </Title>
      <Text size="sm" c="dimmed" mb="sm">
        {t('outputs.counts')}
      </Text>
      <Loaded query={query}>
        {(events) =>
          events.length ? (
            <Scrolled mah={420} label={t('outputs.events')}>
              <DataTable
                label={t('outputs.events')}
                rows={[...events].sort((a, b) => b.at.localeCompare(a.at))}
                keyOf={({ id }) => String(id)}
                columns={[
                  { name: 'at', title: t('pipelines.at'), cell: ({ at }) => <Time at={at} />, isStill: true },
                  { name: 'output', title: t('pipelines.output'), cell: ({ output }) => output, isLead: true },
                  { name: 'state', title: t('common.status'), cell: ({ state }) => <BreakerBadge state={state as Breaker['state']} /> },
                  { name: 'cause', title: t('outputs.cause'), cell: ({ cause }) => cause, isWide: true },
                ]}
              />
            </Scrolled>
          ) : (
            <Text size="sm" c="dimmed" py="md">
              {t('outputs.noEvents')}
            </Text>
          )
        }
      </Loaded>
    </Card>
  )
}
