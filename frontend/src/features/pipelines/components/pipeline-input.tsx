import { Alert, Badge, Card, Code, Group, Progress, Stack, Table, Text, Title } from '@mantine/core'
import { IconAlertTriangle, IconClock, IconLoader, IconPlayerPause } from '@tabler/icons-react'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import { Time } from '@/components/time'
import { useInputState, type InputState } from '@/features/pipelines/api/pipelines'
import { count } from '@/lib/format'

/** How an input that Headrace reads is being read; nothing for other inputs. */
export function PipelineInput({ id }: { id: string }) {
  const { data: input } = useInputState(id)
  return input && input.state !== 'none' ? <InputCard input={input} /> : null
}

export function InputCard({ input }: { input: InputState }) {
  const { t } = useTranslation()
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h5">
          {t('pipelines.input.title')}
        </Title>
        <State state={input.state} />
      </Group>
      <Stack gap="sm">
        {input.failure && (
          <Alert color="red" title={t('pipelines.input.failing')}>
            <Text size="sm">{input.failure}</Text>
            <Text size="xs" c="dimmed">
              {t('pipelines.input.failingSince')} <Time at={input.failing_since} />
            </Text>
          </Alert>
        )}
        {input.reading === 'batching' ? <Batch input={input} /> : <Stream input={input} />}
      </Stack>
    </Card>
  )
}

const states = {
  idle: ['gray', IconClock],
  reading: ['blue', IconLoader],
  paused: ['yellow', IconPlayerPause],
  failing: ['red', IconAlertTriangle],
  none: ['gray', IconClock],
} as const

function State({ state }: { state: InputState['state'] }) {
  const { t } = useTranslation()
  const [color, Icon] = states[state]
  return (
    <Badge color={color} variant="light" tt="none" leftSection={<Icon size={12} aria-hidden />}>
      {t(`pipelines.input.states.${state}`)}
    </Badge>
  )
}

function Batch({ input }: { input: InputState }) {
  const { t, i18n } = useTranslation()
  const rows = count(input.rows, i18n.language)
  return (
    <>
      {input.first && input.estimate !== null && input.estimate > 0 && (
        <Progress
          value={Math.min(input.rows / input.estimate, 1) * 100}
          aria-label={t('pipelines.input.firstLoad')}
          animated={input.state === 'reading'}
        />
      )}
      <Facts>
        {input.began_at && (
          <Fact label={t(input.first ? 'pipelines.input.firstLoad' : 'pipelines.input.batch')}>
            {input.estimate === null
              ? t('pipelines.input.rows', { rows })
              : t('pipelines.input.rowsOf', { rows, estimate: count(input.estimate, i18n.language) })}
            {', '}
            {t('pipelines.input.since')} <Time at={input.began_at} />
          </Fact>
        )}
        {input.parts && (
          <Fact label={t('pipelines.input.parts')}>{t('pipelines.input.partsLeft', { ...input.parts })}</Fact>
        )}
        <Fact label={t('pipelines.input.lastBatch')}>
          {input.last_batch ? (
            <>
              {t('pipelines.input.rows', { rows: count(input.last_batch.rows, i18n.language) })}
              {', '}
              <Time at={input.last_batch.began_at} /> – <Time at={input.last_batch.ended_at} />
            </>
          ) : (
            t('pipelines.input.noBatch')
          )}
        </Fact>
        {input.next_at && (
          <Fact label={t('pipelines.input.next')}>
            <Time at={input.next_at} />
          </Fact>
        )}
        {input.breakpoint && (
          <Fact label={t('pipelines.input.breakpoint')}>
            <Code style={{ overflowWrap: 'anywhere' }}>{input.breakpoint}</Code>
          </Fact>
        )}
      </Facts>
    </>
  )
}

function Stream({ input }: { input: InputState }) {
  const { t, i18n } = useTranslation()
  return (
    <Facts>
      {input.began_at && (
        <Fact label={t('pipelines.input.stream')}>
          {t('pipelines.input.rows', { rows: count(input.rows, i18n.language) })}
          {', '}
          {t('pipelines.input.since')} <Time at={input.began_at} />
        </Fact>
      )}
      <Fact label={t('pipelines.input.lag')}>
        {input.estimate === null ? t('pipelines.input.lagUnknown') : count(input.estimate, i18n.language)}
      </Fact>
    </Facts>
  )
}

function Facts({ children }: { children: ReactNode }) {
  return (
    <Table variant="vertical" layout="fixed" withRowBorders={false}>
      <Table.Tbody>{children}</Table.Tbody>
    </Table>
  )
}

function Fact({ label, children }: { label: string; children: ReactNode }) {
  return (
    <Table.Tr>
      <Table.Th w={180}>{label}</Table.Th>
      <Table.Td>{children}</Table.Td>
    </Table.Tr>
  )
}
