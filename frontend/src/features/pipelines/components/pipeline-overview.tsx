import { LineChart } from '@mantine/charts'
import { Card, Group, SegmentedControl, SimpleGrid, Stack, Table, Text, Title, Tooltip } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { Figure } from '@/components/figure'
import { Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { useErrors, useHistory } from '@/features/pipelines/api/pipelines'
import { useSeconds } from '@/features/pipelines/components/use-seconds'
import { accepted, deadIn, deliveredIn, historyTimeline, ratesByEvent, timeline, type Point } from '@/features/pipelines/rates'
import { clock, count, dateAndTime, perSecond } from '@/lib/format'
import type { Seconds } from '@/lib/live'
import { usePreferences } from '@/lib/preferences'
import type { Pipeline } from '@/lib/queries/pipelines'

const rateWindow = 10
const chartSeconds = 300

export function PipelineOverview({ pipeline }: { pipeline: Pipeline }) {
  const { seconds, now, last24 } = useSeconds(pipeline.id)
  const rates = ratesByEvent(seconds, now, rateWindow)
  return (
    <Stack gap="lg">
      <Figures pipeline={pipeline} rates={rates} last24={last24} />
      <Throughput id={pipeline.id} seconds={seconds} now={now} />
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
  const settled = deliveredIn(last24) + deadIn(last24) + (last24['adapting.dropped'] ?? 0)
  const outputs = pipeline.config.outputs?.length ?? 0
  return (
    <SimpleGrid cols={{ base: 2, md: 4 }}>
      <Figure label={t('pipelines.nowIn')} value={rate(accepted(rates))} note={t('pipelines.window')} />
      <Figure label={t('pipelines.nowOut')} value={rate(deliveredIn(rates))} note={t('pipelines.window')} />
      <Figure label={t('pipelines.dead24')} value={count(deadIn(last24), i18n.language)} />
      <Tooltip label={t('pipelines.waitingHint')} multiline w={280}>
        <div>
          <Figure
            label={t('pipelines.waiting')}
            value={outputs === 1 ? count(Math.max(accepted(last24) - settled, 0), i18n.language) : '–'}
          />
        </div>
      </Tooltip>
    </SimpleGrid>
  )
}

const ranges = ['live', '1', '24', '720'] as const
type Range = (typeof ranges)[number]

function Throughput({ id, seconds, now }: { id: string; seconds: Seconds; now: number }) {
  const { t } = useTranslation()
  const [range, setRange] = useState<Range>('live')
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Title order={3} size="h5">
          {t('pipelines.throughput')}
        </Title>
        <SegmentedControl
          size="xs"
          aria-label={t('pipelines.range')}
          value={range}
          onChange={setRange}
          data={ranges.map((value) => ({ value, label: t(`pipelines.range${value}`) }))}
        />
      </Group>
      {range === 'live' ? (
        <RateChart points={timeline(seconds, now, chartSeconds)} />
      ) : (
        <HistoryChart id={id} hours={Number(range)} now={now} />
      )}
    </Card>
  )
}

function HistoryChart({ id, hours, now }: { id: string; hours: number; now: number }) {
  const history = useHistory(id, hours)
  return <Loaded query={history}>{(steps) => <RateChart points={historyTimeline(steps, now, hours)} withDate={hours > 24} />}</Loaded>
}

function RateChart({ points, withDate = false }: { points: Point[]; withDate?: boolean }) {
  const { t, i18n } = useTranslation()
  const { timeZone } = usePreferences()
  const label = (second: number) => {
    const at = new Date(second * 1000)
    return withDate ? dateAndTime(at, i18n.language, timeZone) : clock(at, i18n.language, timeZone)
  }
  if (points.every((point) => point.in + point.delivered + point.dead === 0)) {
    return (
      <Text c="dimmed" size="sm" py="xl" ta="center">
        {t('pipelines.noTraffic')}
      </Text>
    )
  }
  return (
    <LineChart
      h={260}
      data={points}
      dataKey="second"
      withLegend
      withDots={false}
      strokeWidth={1.5}
      curveType="linear"
      lineProps={{ isAnimationActive: false }}
      tooltipAnimationDuration={0}
      valueFormatter={(value) => perSecond(value, i18n.language)}
      xAxisProps={{ tickFormatter: label, minTickGap: 60 }}
      yAxisProps={{ domain: [0, 'auto'] }}
      series={[
        { name: 'in', label: t('pipelines.inRate'), color: 'indigo.6' },
        { name: 'delivered', label: t('pipelines.outRate'), color: 'green.7' },
        { name: 'dead', label: t('pipelines.deadRate'), color: 'red.7' },
      ]}
      tooltipProps={{ labelFormatter: (second) => (second === undefined ? '' : label(Number(second))) }}
    />
  )
}

function StageTable({ rates, last24 = {} }: Omit<FiguresProps, 'pipeline'>) {
  const { t, i18n } = useTranslation()
  const events = [...new Set([...Object.keys(last24), ...Object.keys(rates)])].sort(byStage)
  return (
    <Card withBorder>
      <Title order={3} size="h5" mb="sm">
        {t('pipelines.stages')}
      </Title>
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('pipelines.stage')}</Table.Th>
            <Table.Th>{t('pipelines.event')}</Table.Th>
            <Table.Th ta="right">{t('pipelines.perSecond')}</Table.Th>
            <Table.Th ta="right">{t('pipelines.total24')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {events.map((event) => {
            const [stage, kind] = namesOf(event)
            return (
              <Table.Tr key={event}>
                <Table.Td>
                  {stage.name === undefined
                    ? t(`pipelines.stageNames.${stage.kind}`, { defaultValue: stage.kind })
                    : t(stage.kind === 'api' ? 'pipelines.stageApi' : 'pipelines.stageOutput', { name: stage.name })}
                </Table.Td>
                <Table.Td>{t(`pipelines.${kind}`)}</Table.Td>
                <Table.Td ta="right">{perSecond(rates[event] ?? 0, i18n.language)}</Table.Td>
                <Table.Td ta="right" data-event={event}>
                  {count(last24[event] ?? 0, i18n.language)}
                </Table.Td>
              </Table.Tr>
            )
          })}
        </Table.Tbody>
      </Table>
    </Card>
  )
}

const kinds = [
  'accepted',
  'transformed',
  'dropped',
  'diverted',
  'called',
  'cached',
  'unanswered',
  'delivered',
  'retried',
  'suppressed',
  'repeated',
  'offered',
  'matched',
] as const
type Kind = (typeof kinds)[number] | 'deadEvent'

/** `output.erp.delivered` is the event "delivered" of the output "erp", `api.people.called` one of an API. */
function namesOf(event: string): [{ kind: string; name?: string }, Kind] {
  const parts = event.split('.')
  const kind = kinds.find((known) => known === parts.at(-1)) ?? 'deadEvent'
  return [{ kind: parts[0] ?? '', name: parts.length > 2 ? parts.slice(1, -1).join('.') : undefined }, kind]
}

const order = ['input', 'filtering', 'adapting', 'api', 'output']

function byStage(a: string, b: string): number {
  const place = (event: string) => order.indexOf(event.split('.')[0] ?? '')
  return place(a) - place(b) || a.localeCompare(b)
}

function LastErrors({ id }: { id: string }) {
  const { t } = useTranslation()
  const query = useErrors(id)
  return (
    <Card withBorder>
      <Title order={3} size="h5" mb="sm">
        {t('pipelines.errors')}
      </Title>
      <Loaded query={query}>
        {(errors) =>
          errors.length ? (
            <Table.ScrollContainer minWidth={420} mah={420}>
              <Table>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>{t('pipelines.at')}</Table.Th>
                    <Table.Th>{t('pipelines.stage')}</Table.Th>
                    <Table.Th>{t('pipelines.message')}</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {errors.map((error) => (
                    <Table.Tr key={error.message_id + error.at}>
                      <Table.Td>
                        <Time at={error.at} />
                      </Table.Td>
                      <Table.Td>{error.stage}</Table.Td>
                      <Table.Td style={{ overflowWrap: 'anywhere' }}>{error.message}</Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </Table.ScrollContainer>
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
