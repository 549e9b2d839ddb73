import { Anchor, Button, Card, Group, List, SimpleGrid, Stack, Table, Text, Title } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { ConfirmButton } from '@/components/confirm-button'
import { Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import { useOutputEvents, useOutputs, useSetBreaker, type Breaker, type Output } from '@/features/deliveries/api/deliveries'
import { BreakerBadge } from '@/features/deliveries/components/breaker-badge'
import { Countdown } from '@/features/deliveries/components/countdown'
import { count, duration } from '@/lib/format'
import { useLive, useLiveCounts } from '@/lib/live'

/** Where the pipeline delivers to, and whether each output is well. */
export function PipelineOutputs({ pipeline }: { pipeline: string }) {
  const query = useOutputs(pipeline)
  useLiveCounts([pipeline])
  const { breakers } = useLive()
  return (
    <Stack gap="lg">
      <Loaded query={query}>
        {(outputs) => (
          <SimpleGrid cols={{ base: 1, lg: 2 }}>
            {outputs.map((output) => (
              <OutputCard
                key={output.name}
                pipeline={pipeline}
                output={output}
                breaker={breakers[pipeline]?.[output.name] ?? output.breaker}
              />
            ))}
          </SimpleGrid>
        )}
      </Loaded>
      <Events pipeline={pipeline} />
    </Stack>
  )
}

function OutputCard({ pipeline, output, breaker }: { pipeline: string; output: Output; breaker: Breaker }) {
  const { t, i18n } = useTranslation()
  const set = useSetBreaker(pipeline)
  const change = (open: boolean) => set.mutate({ name: output.name, open }, { onError: toastFailed })
  const limit = output.rate_limit
  return (
    <Card withBorder>
      <Group justify="space-between" mb="xs">
        <Group gap="sm">
          <Text fw={600}>{output.name}</Text>
          <BreakerBadge state={breaker.state} />
        </Group>
        {breaker.state === 'closed' ? (
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
        <Anchor
          size="sm"
          component={Link}
          to={`/dead-letters?pipeline=${pipeline}&output=${encodeURIComponent(output.name)}&state=waiting`}
        >
          {t('outputs.deadLetters', { count: output.dead_letters })}
        </Anchor>
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

function Events({ pipeline }: { pipeline: string }) {
  const { t } = useTranslation()
  const query = useOutputEvents(pipeline)
  return (
    <Card withBorder>
      <Title order={3} size="h5" mb="sm">
        {t('outputs.events')}
      </Title>
      <Loaded query={query}>
        {(events) =>
          events.length ? (
            <Table.ScrollContainer minWidth={520} mah={420}>
              <Table>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>{t('pipelines.at')}</Table.Th>
                    <Table.Th>{t('pipelines.output')}</Table.Th>
                    <Table.Th>{t('common.status')}</Table.Th>
                    <Table.Th>{t('outputs.cause')}</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {events.map((event) => (
                    <Table.Tr key={event.id}>
                      <Table.Td>
                        <Time at={event.at} />
                      </Table.Td>
                      <Table.Td>{event.output}</Table.Td>
                      <Table.Td>
                        <BreakerBadge state={event.state as Breaker['state']} />
                      </Table.Td>
                      <Table.Td style={{ overflowWrap: 'anywhere' }}>{event.cause}</Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </Table.ScrollContainer>
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
