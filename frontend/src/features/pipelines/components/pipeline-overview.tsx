import { Card, SimpleGrid, Stack, Text, Title, Tooltip } from '@mantine/core'
import type { TFunction } from 'i18next'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import { RateChart } from '@/components/charts/rate-chart'
import { DataTable } from '@/components/data-table'
import { Figure } from '@/components/figure'
import { Scrolled } from '@/components/scrolled'
import { Loaded } from '@/components/states'
import { ThroughputCard } from '@/components/throughput-card'
import { Time } from '@/components/time'
import { useErrors, useHistory } from '@/features/pipelines/api/pipelines'
import { eventName, eventPlace } from '@/features/pipelines/events'
import { LiveFlow } from '@/features/pipelines/flow/live-flow'
import { PipelineInput } from '@/features/pipelines/components/pipeline-input'
import { useSeconds } from '@/features/pipelines/components/use-seconds'
import { accepted, deadIn, deliveredIn, historyTimeline, ratesByEvent, timeline, waitingIn } from '@/lib/rates'
import { count, perSecond } from '@/lib/format'
import { useEachMinute } from '@/lib/live'
import type { Seconds } from '@/lib/seconds'
import type { Pipeline } from '@/lib/queries/pipelines'

const rateWindow = 10
const chartSeconds = 300

interface Props {
  pipeline: Pipeline
  /** The state of an output, and what can be done about it. */
  output: (name: string) => ReactNode
}

export function PipelineOverview({ pipeline, output }: Props) {
  const { seconds, now, last24 } = useSeconds(pipeline.id)
  const rates = ratesByEvent(seconds, now, rateWindow)
  return (
    <Stack gap="lg">
      <Figures pipeline={pipeline} rates={rates} last24={last24} />
      <LiveFlow pipeline={pipeline} rates={rates} last24={last24} output={output} />
      {pipeline.config.input?.type === 'connector' && <PipelineInput id={pipeline.id} />}
      <Throughput id={pipeline.id} seconds={seconds} now={now} bornAt={new Date(pipeline.created_at)} />
      <SimpleGrid cols={{ base: 1, lg: 2 }}>
        <StageTable rates={rates} last24={last24} />
        <LastErrors id={pipeline.id} />
      </SimpleGrid>
    </Stack>
  )
}

interface FiguresProps {
  pipeline: Pipeline
  rates: Record<string, number>
  last24: Record<string, number> | undefined
}

function Figures({ pipeline, rates, last24 = {} }: FiguresProps) {
  const { t, i18n } = useTranslation()
  const rate = (value: number) => t('pipelines.ratePerSecond', { rate: perSecond(value, i18n.language) })
  const outputs = pipeline.config.outputs?.length ?? 0
  return (
    <SimpleGrid cols={{ base: 2, md: 4 }}>
      <Figure isLive label={t('pipelines.nowIn')} value={rate(accepted(rates))} note={t('pipelines.window')} />
      <Figure isLive label={t('pipelines.nowOut')} value={rate(deliveredIn(rates))} note={t('pipelines.window')} />
      <Figure label={t('pipelines.dead24')} value={count(deadIn(last24), i18n.language)} note={t('pipelines.messages')} />
      {outputs === 1 ? (
        <Tooltip label={t('pipelines.waitingHint')} multiline w={280}>
          <div>
            <Figure label={t('pipelines.waiting')} value={count(waitingIn(last24), i18n.language)} note={t('pipelines.messages')} />
          </div>
        </Tooltip>
      ) : (
        <Figure label={t('pipelines.delivered24')} value={count(deliveredIn(last24), i18n.language)} note={t('pipelines.allOutputs', { count: outputs })} />
      )}
    </SimpleGrid>
  )
}

function Throughput({ id, seconds, now, bornAt }: { id: string; seconds: Seconds; now: number; bornAt: Date }) {
  return (
    <ThroughputCard ranges={['live', '1', '24', '720']}>
      {(range) =>
        range === 'live' ? (
          <RateChart points={timeline(seconds, now, chartSeconds)} />
        ) : (
          <HistoryChart id={id} hours={Number(range)} now={now} bornAt={bornAt} />
        )
      }
    </ThroughputCard>
  )
}

function HistoryChart({ id, hours, now, bornAt }: { id: string; hours: number; now: number; bornAt: Date }) {
  const history = useHistory(id, hours)
  useEachMinute(history.refetch)
  return <Loaded query={history}>{(steps) => <RateChart points={historyTimeline(steps, now, hours, bornAt)} withDate={hours > 24} />}</Loaded>
}

function StageTable({ rates, last24 = {} }: Omit<FiguresProps, 'pipeline'>) {
  const { t, i18n } = useTranslation()
  const events = [...new Set([...Object.keys(last24), ...Object.keys(rates)])].sort(byStage)
  const stageOf = (event: string) => {
    const stage = eventPlace(event)
    return stage.name === undefined
      ? t(`pipelines.stageNames.${stage.kind}`, { defaultValue: stage.kind })
      : t(named[stage.kind] ?? 'pipelines.stageOutput', { name: stage.name })
  }
  return (
    <Card withBorder>
      <Title order={2} size="h5" mb="sm">
        {t('pipelines.stages')}
      </Title>
      {events.length ? (
        <DataTable
          label={t('pipelines.stages')}
          isSmall
          rows={events}
          keyOf={(event) => event}
          columns={[
            { name: 'stage', title: t('pipelines.stage'), cell: stageOf, isLead: true },
            { name: 'event', title: t('pipelines.event'), cell: (event) => t(`events.${eventName(event)}`) },
            { name: 'rate', title: t('pipelines.perSecond'), cell: (event) => perSecond(rates[event] ?? 0, i18n.language), isNumber: true },
            { name: 'total', title: t('pipelines.total24'), cell: (event) => count(last24[event] ?? 0, i18n.language), isNumber: true },
          ]}
        />
      ) : (
        <Text c="dimmed" size="sm" py="md">
          {t('flow.noCounts')}
        </Text>
      )}
    </Card>
  )
}

const named: Record<string, 'pipelines.stageApi' | 'pipelines.stageStep'> = { api: 'pipelines.stageApi', step: 'pipelines.stageStep' }

const order = ['input', 'filtering', 'adapting', 'step', 'api', 'output']

function byStage(a: string, b: string): number {
  const place = (event: string) => order.indexOf(event.split('.')[0] ?? '')
  return place(a) - place(b) || a.localeCompare(b)
}

/** `output crm` and `api erp` are as the data plane writes them. */
function stageName(t: TFunction, stage: string): string {
  const [kind = '', ...name] = stage.split(' ')
  return name.length ? t(named[kind] ?? 'pipelines.stageOutput', { name: name.join(' ') }) : t(`pipelines.stageNames.${stage}`, { defaultValue: stage })
}

function LastErrors({ id }: { id: string }) {
  const { t } = useTranslation()
  const query = useErrors(id)
  return (
    <Card withBorder>
      <Title order={2} size="h5" mb="sm">
        {t('pipelines.errors')}
      </Title>
      <Loaded query={query}>
        {(errors) =>
          errors.length ? (
            <Scrolled mah={420} label={t('pipelines.errors')}>
              <DataTable
                label={t('pipelines.errors')}
                rows={errors}
                keyOf={({ message_id, at }) => message_id + at}
                columns={[
                  { name: 'at', title: t('pipelines.at'), cell: ({ at }) => <Time at={at} />, isStill: true },
                  { name: 'stage', title: t('pipelines.stage'), cell: ({ stage }) => stageName(t, stage) },
                  { name: 'message', title: t('pipelines.message'), cell: ({ message }) => message, isWide: true },
                ]}
              />
            </Scrolled>
          ) : (
            <Text c="dimmed" size="sm" py="md">
              {t('pipelines.noErrors')}
            </Text>
          )
        }
      </Loaded>
    </Card>
  )
}
