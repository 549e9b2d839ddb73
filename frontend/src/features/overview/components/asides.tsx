import { Anchor, Card, Group, Stack, Text, Title } from '@mantine/core'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { useBacklogs, useRecentChanges } from '@/features/overview/api/overview'
import { bytes, count, duration } from '@/lib/format'
import { useLive } from '@/lib/live'
import { usePipelineName } from '@/lib/queries/pipelines'

function Aside({ title, to, all, children }: { title: string; to: string; all: string; children: ReactNode }) {
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm" wrap="nowrap">
        <Title order={2} size="h5">
          {title}
        </Title>
        <Anchor component={Link} to={to} size="sm">
          {all}
        </Anchor>
      </Group>
      {children}
    </Card>
  )
}

/** What was delivered since the month began, in UTC, as it is billed. */
export function MonthUsage() {
  const { t, i18n } = useTranslation()
  const { usage, state } = useLive()
  const format = new Intl.DateTimeFormat(i18n.language, { month: 'long', year: 'numeric', timeZone: 'UTC' })
  const month = usage ? format.format(new Date(usage.since)) : '…'
  return (
    <Aside title={t('overview.usage', { month })} to="/usage" all={t('overview.toUsage')}>
      <Group gap="xl" c={state === 'live' ? undefined : 'dimmed'}>
        <Amount label={t('usage.deliveries')} value={usage ? count(usage.deliveries, i18n.language) : '–'} />
        <Amount label={t('usage.volume')} value={usage ? bytes(usage.bytes, i18n.language) : '–'} />
      </Group>
    </Aside>
  )
}

function Amount({ label, value }: { label: string; value: string }) {
  return (
    <div>
      <Text size="lg" fw={600}>
        {value}
      </Text>
      <Text size="xs" c="dimmed">
        {label}
      </Text>
    </div>
  )
}

/** How many messages wait for each stage. */
export function Backlogs() {
  const { t, i18n } = useTranslation()
  const query = useBacklogs()
  return (
    <Aside title={t('overview.backlogs')} to="/jobs" all={t('overview.toJobs')}>
      <Loaded query={{ ...query, data: query.data?.filter(({ lag }) => lag !== null) }}>
        {(counted) => (
          <Stack gap={4}>
            {!counted.length && (
              <Text size="sm" c="dimmed">
                {t('overview.notCounted')}
              </Text>
            )}
            {counted.map(({ name, lag }) => (
              <Group key={name} justify="space-between" wrap="nowrap">
                <Text size="sm">{t(`overview.stages.${name}`, { defaultValue: name })}</Text>
                <Text size="sm" c={lag ? undefined : 'dimmed'}>
                  {count(lag ?? 0, i18n.language)}
                </Text>
              </Group>
            ))}
          </Stack>
        )}
      </Loaded>
    </Aside>
  )
}

/** What rate limits allow now and what waits for them, those with the most waiting first; nothing without any. */
export function RateLimits() {
  const { t, i18n } = useTranslation()
  const nameOf = usePipelineName()
  const { limits, state } = useLive()
  if (!limits.length) return null
  return (
    <Aside title={t('overview.limits')} to="/pipelines" all={t('overview.toPipelines')}>
      <Stack gap="xs" c={state === 'live' ? undefined : 'dimmed'}>
        {limits.map(({ pipeline, output, rate_limit: { messages, period_seconds, waiting } }) => (
          <Group key={`${pipeline} ${output}`} justify="space-between" wrap="nowrap" align="flex-start">
            <Anchor component={Link} to={`/pipelines/${pipeline}/outputs`} size="sm" style={{ overflowWrap: 'anywhere' }}>
              {nameOf(pipeline)}, {output}
            </Anchor>
            <div style={{ textAlign: 'right', flexShrink: 0 }}>
              <Text size="sm">{t('overview.limit', { messages: count(messages, i18n.language), period: duration(period_seconds, i18n.language) })}</Text>
              <Text size="xs" c={waiting ? 'yellow' : 'dimmed'}>
                {t('overview.limited', { count: waiting })}
              </Text>
            </div>
          </Group>
        ))}
      </Stack>
    </Aside>
  )
}

/** Who changed what lately. */
export function RecentChanges() {
  const { t } = useTranslation()
  const query = useRecentChanges(true)
  return (
    <Aside title={t('overview.changes')} to="/audit" all={t('overview.toAudit')}>
      <Loaded query={query}>
        {(entries) => (
          <Stack gap="xs">
            {entries.map((entry) => (
              <Group key={entry.id} justify="space-between" gap={2}>
                <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
                  {t(`audit.actions.${entry.action}`, { defaultValue: entry.action })}
                  {entry.object_name && `: ${entry.object_name}`}
                </Text>
                <Text size="xs" c="dimmed">
                  {entry.actor}, <Time at={entry.at} />
                </Text>
              </Group>
            ))}
          </Stack>
        )}
      </Loaded>
    </Aside>
  )
}
