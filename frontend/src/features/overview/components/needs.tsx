import { Anchor, Badge, Button, Card, Group, Stack, Text, Title } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck, IconMailX } from '@tabler/icons-react'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { BreakerBadge } from '@/components/breaker-badge'
import { Countdown } from '@/components/countdown'
import { Time } from '@/components/time'
import { toastDone, toastFailed } from '@/components/toasts'
import type { Need } from '@/features/overview/attention'
import { useSetBreaker } from '@/lib/queries/outputs'
import { includes, useRole } from '@/lib/queries/session'
import { reasonLabel } from '@/lib/reasons'
import { useServerTexts } from '@/lib/texts'

/** More are on the page of the pipelines. */
const most = 12

/** The pipelines that need somebody, each with its reason and the button that helps. */
export function Needs({ needs }: { needs: Need[] }) {
  const { t } = useTranslation()
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h5">
          {t('overview.needs')}
        </Title>
        {needs.length > most && (
          <Anchor component={Link} to="/pipelines" size="sm">
            {t('overview.allNeeds', { count: needs.length })}
          </Anchor>
        )}
      </Group>
      {needs.length ? (
        <Stack gap="md">
          {needs.slice(0, most).map((need) => (
            <NeedRow key={keyOf(need)} need={need} />
          ))}
        </Stack>
      ) : (
        <Group gap="xs" wrap="nowrap" c="dimmed">
          <IconCircleCheck size={18} aria-hidden />
          <Text size="sm">{t('overview.noNeeds')}</Text>
        </Group>
      )}
    </Card>
  )
}

function keyOf(need: Need): string {
  const part = need.kind === 'breaker' ? need.opened.output : need.kind === 'endangered' ? need.cause : ''
  return `${need.pipeline.id} ${need.kind} ${part}`
}

function NeedRow({ need }: { need: Need }) {
  const { t } = useTranslation()
  const text = useServerTexts()
  const { pipeline } = need
  switch (need.kind) {
    case 'breaker':
      return <BreakerNeed need={need} />
    case 'deadLetters':
      return <DeadLettersNeed need={need} />
    default:
      return (
        <Row
          pipeline={pipeline}
          badge={<Trouble color={need.kind === 'failed' ? 'red' : 'orange'} label={t(`overview.kinds.${need.kind}`)} />}
          action={<Go to={`/pipelines/${pipeline.id}`} label={t('overview.look')} />}
        >
          <Text size="sm">{text(need.cause)}</Text>
        </Row>
      )
  }
}

function BreakerNeed({ need: { pipeline, opened } }: { need: Extract<Need, { kind: 'breaker' }> }) {
  const { t } = useTranslation()
  const set = useSetBreaker()
  const role = useRole()
  const { output, breaker } = opened
  return (
    <Row
      pipeline={pipeline}
      badge={<BreakerBadge state={breaker.state} />}
      action={
        includes(role, 'operator') ? (
          <Button
            size="xs"
            variant="default"
            loading={set.isPending}
            onClick={() =>
              // The promise settles even when the live news removes this row before the answer comes.
              void set
                .mutateAsync({ pipeline: pipeline.id, output, open: false })
                .then(() => toastDone(t('overview.breakerClosed', { output })), toastFailed)
            }
          >
            {t('outputs.close')}
          </Button>
        ) : (
          <Go to={`/pipelines/${pipeline.id}/outputs`} label={t('overview.look')} />
        )
      }
    >
      <Text size="sm">
        {t('overview.output', { output })}
        {breaker.state === 'open' && breaker.until && (
          <span role="timer">
            {' · '}
            {t('outputs.probeIn')} <Countdown until={breaker.until} />
          </span>
        )}
      </Text>
      {breaker.cause && (
        <Text size="sm" c="dimmed">
          {breaker.cause}
        </Text>
      )}
    </Row>
  )
}

function DeadLettersNeed({ need: { pipeline, condition, reason } }: { need: Extract<Need, { kind: 'deadLetters' }> }) {
  const { t } = useTranslation()
  const letters = t('overview.deadLetters', { count: condition.dead_letters })
  return (
    <Row
      pipeline={pipeline}
      badge={<Trouble color="yellow" icon={<IconMailX size={12} aria-hidden />} label={letters} />}
      action={<Go to={`/dead-letters?pipeline=${pipeline.id}`} label={t('overview.redrive')} />}
    >
      <Text size="sm">{reasonLabel(t, reason)}</Text>
      <Text size="sm" c="dimmed">
        {t('deadLetters.oldest')}: <Time at={condition.oldest} />
      </Text>
    </Row>
  )
}

interface RowProps {
  pipeline: Need['pipeline']
  badge: ReactNode
  action: ReactNode
  children: ReactNode
}

function Row({ pipeline, badge, action, children }: RowProps) {
  return (
    <Group justify="space-between" align="flex-start" gap="sm">
      <Stack gap={2} style={{ flex: '1 1 240px', minWidth: 0, overflowWrap: 'anywhere' }}>
        <Group gap="xs">
          <Anchor component={Link} to={`/pipelines/${pipeline.id}`} fw={600} size="sm">
            {pipeline.name}
          </Anchor>
          {badge}
        </Group>
        {children}
      </Stack>
      {action}
    </Group>
  )
}

function Trouble({ color, label, icon }: { color: string; label: string; icon?: ReactNode }) {
  return (
    <Badge color={color} variant="light" tt="none" miw="max-content" leftSection={icon ?? <IconAlertTriangle size={12} aria-hidden />}>
      {label}
    </Badge>
  )
}

function Go({ to, label }: { to: string; label: string }) {
  return (
    <Button size="xs" variant="default" component={Link} to={to}>
      {label}
    </Button>
  )
}
