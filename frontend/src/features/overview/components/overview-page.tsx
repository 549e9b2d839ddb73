import { Grid, Group, SimpleGrid, Stack, Text } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck } from '@tabler/icons-react'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import { RateChart } from '@/components/charts/rate-chart'
import { Figure } from '@/components/figure'
import { LoadedPage, Page } from '@/components/page'
import { Loaded } from '@/components/states'
import { ThroughputCard } from '@/components/throughput-card'
import { useThroughput } from '@/features/overview/api/overview'
import { Backlogs, MonthUsage, RateLimits, RecentChanges } from '@/features/overview/components/asides'
import { Needs } from '@/features/overview/components/needs'
import { count, perSecond } from '@/lib/format'
import { useEachMinute, useLive } from '@/lib/live'
import { needsOf } from '@/lib/pipeline-status'
import { useConditions } from '@/lib/queries/conditions'
import { useHealth } from '@/lib/queries/health'
import type { Listing } from '@/lib/queries/listing'
import { usePipelineName, usePipelines, type Pipeline } from '@/lib/queries/pipelines'
import { includes, useRole } from '@/lib/queries/session'
import { historyTimeline } from '@/lib/rates'

interface Props {
  /** Shown instead where nothing flows yet. */
  guide: ReactNode
  /** What stands above the figures, such as the demo's switch. */
  tools: ReactNode
}

/** Is data flowing, and if not, where is it stuck and since when? */
export function OverviewPage({ guide, tools }: Props) {
  const pipelines = usePipelines()
  return (
    <LoadedPage query={pipelines}>
      {(all) =>
        all.hasMore || all.rows.some((pipeline) => pipeline.published_version !== null) ? <Overview pipelines={all} tools={tools} /> : guide
      }
    </LoadedPage>
  )
}

function Overview({ pipelines, tools }: { pipelines: Listing<Pipeline>; tools: ReactNode }) {
  const nameOf = usePipelineName()
  const conditions = useConditions()
  const isAdmin = includes(useRole(), 'admin')
  const needs = conditions.data && needsOf([...conditions.data.values()], nameOf)
  return (
    <Page purpose={needs && <HealthLine needs={new Set(needs.map(({ pipeline }) => pipeline.id)).size} pipelines={pipelines.count} />} action={tools}>
      <Stack gap="lg">
        <Figures deadLetters={[...(conditions.data?.values() ?? [])].reduce((sum, { dead_letters }) => sum + dead_letters, 0)} />
        <Grid gap="lg">
          <Grid.Col span={{ base: 12, lg: 8 }}>
            <Stack gap="lg">
              <Loaded query={{ ...conditions, data: needs }}>{(found) => <Needs needs={found} />}</Loaded>
              <Throughput pipelines={pipelines} />
              {isAdmin && <RecentChanges />}
            </Stack>
          </Grid.Col>
          <Grid.Col span={{ base: 12, lg: 4 }}>
            <Stack gap="lg">
              <Backlogs />
              <RateLimits />
              <MonthUsage />
            </Stack>
          </Grid.Col>
        </Grid>
      </Stack>
    </Page>
  )
}

/** The health of the installation in a line. */
function HealthLine({ needs, pipelines }: { needs: number; pipelines: number }) {
  const { t } = useTranslation()
  const health = useHealth()
  const isAway = health.error !== null || Object.values(health.data ?? {}).some((state) => state !== 'ok')
  const isWell = !needs && !isAway
  const Icon = isWell ? IconCircleCheck : IconAlertTriangle
  const sentence = isAway ? t('overview.unavailable') : needs ? t('overview.needy', { count: needs, pipelines }) : t('overview.well', { count: pipelines })
  return (
    <Group gap={6} wrap="nowrap" c={isAway ? 'red' : needs ? 'yellow' : undefined}>
      <Icon size={18} aria-hidden style={{ flexShrink: 0 }} />
      <span>{sentence}</span>
    </Group>
  )
}

function Figures({ deadLetters }: { deadLetters: number }) {
  const { t, i18n } = useTranslation()
  const { rates, waiting } = useLive()
  const rate = (value: number | undefined) => (value === undefined ? '–' : t('pipelines.ratePerSecond', { rate: perSecond(value, i18n.language) }))
  // Without news of the last minutes nothing happened, and nothing waits.
  const messages = waiting?.messages ?? (rates ? 0 : undefined)
  return (
    <SimpleGrid cols={{ base: 2, md: 4 }}>
      <Figure label={t('pipelines.nowIn')} value={rate(rates?.accepted)} note={t('overview.window')} isLive />
      <Figure label={t('pipelines.nowOut')} value={rate(rates?.delivered)} note={t('overview.window')} isLive />
      <Figure
        label={t('overview.failed')}
        value={count(deadLetters, i18n.language)}
        note={t('overview.failedNow', { rate: rate(rates?.failed) })}
        isLive
      />
      <Figure
        label={t('pipelines.waiting')}
        value={messages === undefined ? '–' : count(messages, i18n.language)}
        note={t('overview.waitingNote')}
        isLive
      />
    </SimpleGrid>
  )
}

function Throughput({ pipelines: { rows, hasMore } }: { pipelines: Listing<Pipeline> }) {
  const { t } = useTranslation()
  // Of too many to be loaded, the oldest are older than any chart.
  const bornAt = new Date(hasMore ? 0 : Math.min(...rows.map(({ created_at }) => Date.parse(created_at))))
  return (
    <ThroughputCard ranges={['1', '24', '720']}>
      {(range) => (
        <>
          <History hours={Number(range)} bornAt={bornAt} />
          <Text size="xs" c="dimmed" mt="xs">
            {t('overview.historyNote')}
          </Text>
        </>
      )}
    </ThroughputCard>
  )
}

function History({ hours, bornAt }: { hours: number; bornAt: Date }) {
  const history = useThroughput(hours)
  useEachMinute(history.refetch)
  return (
    <Loaded query={history}>
      {(steps) => <RateChart points={historyTimeline(steps, history.dataUpdatedAt / 1000, hours, bornAt)} withDate={hours > 24} />}
    </Loaded>
  )
}
