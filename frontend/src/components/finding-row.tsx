import { Button, Group, Stack, Text } from '@mantine/core'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, useLocation } from 'react-router'

import { Countdown } from '@/components/countdown'
import { PipelineState } from '@/components/pipeline-state'
import { Time } from '@/components/time'
import { toastDone, toastFailed } from '@/components/toasts'
import type { Finding, State } from '@/lib/pipeline-status'
import { useSetBreaker } from '@/lib/queries/outputs'
import { includes, useRole } from '@/lib/queries/session'
import { useServerTexts } from '@/lib/texts'

interface Props {
  /** The pipeline's id. */
  pipeline: string
  finding: Finding
  /** What stands before the state, such as the pipeline's name. */
  lead?: ReactNode
}

/** A trouble of a pipeline: its reason, the error behind it, and the button that helps. */
export function FindingRow({ pipeline, finding, lead }: Props) {
  const { t } = useTranslation()
  const text = useServerTexts()
  const { state, error, since } = finding
  return (
    <Group justify="space-between" align="flex-start" gap="sm">
      <Stack gap={2} style={{ flex: '1 1 240px', minWidth: 0, overflowWrap: 'anywhere' }}>
        <Group gap="xs">
          {lead}
          <PipelineState state={state} />
        </Group>
        <Text size="sm">
          <FindingReason finding={finding} />
        </Text>
        {error && (
          <Text size="sm" c="dimmed">
            {text(error)}
          </Text>
        )}
        {since && (
          <Text size="xs" c="dimmed">
            {t('pipelines.since')} <Time at={since} />
          </Text>
        )}
      </Stack>
      <Help pipeline={pipeline} finding={finding} />
    </Group>
  )
}

/** What happens then, where it is no next try. */
const changes: Partial<Record<State, 'outputs.probeIn' | 'pipelines.nextFileIn'>> = { blocked: 'outputs.probeIn', idle: 'pipelines.nextFileIn' }

/** What a finding says, and when it changes. */
export function FindingReason({ finding: { state, reason, until } }: Pick<Props, 'finding'>) {
  const { t } = useTranslation()
  const text = useServerTexts()
  return (
    <>
      {text(reason)}
      {until && (
        <span role="timer">
          {' '}
          {t(changes[state] ?? 'pipelines.nextTryIn')} <Countdown until={until} />
        </span>
      )}
    </>
  )
}

/** What the user may do about it; a look at the pipeline where that is all. */
function Help({ pipeline, finding: { action, place } }: Pick<Props, 'pipeline' | 'finding'>) {
  const { t } = useTranslation()
  const role = useRole()
  const { pathname } = useLocation()
  const page = `/pipelines/${pipeline}`
  const go = (to: string, label: string) =>
    to === pathname ? null : (
      <Button size="xs" variant="default" component={Link} to={to}>
        {label}
      </Button>
    )
  switch (action) {
    case 'close_breaker':
      return includes(role, 'operator') ? <CloseBreaker pipeline={pipeline} output={place} /> : go(`${page}/outputs`, t('overview.look'))
    case 'edit':
      return includes(role, 'editor') ? go(`${page}/edit`, t('common.edit')) : go(page, t('overview.look'))
    case 'open_dead_letters':
      return go(`/dead-letters?pipeline=${pipeline}`, t('pipelines.actions.open_dead_letters'))
    case 'open_exports':
      return go(`/exports?pipeline=${pipeline}`, t('pipelines.actions.open_exports'))
    case 'open_jobs':
      return go('/jobs', t('pipelines.actions.open_jobs'))
    default:
      return go(page, t('overview.look'))
  }
}

function CloseBreaker({ pipeline, output }: { pipeline: string; output: string }) {
  const { t } = useTranslation()
  const set = useSetBreaker()
  return (
    <Button
      size="xs"
      variant="default"
      loading={set.isPending}
      onClick={() =>
        // The promise settles even when the live news removes this row before the answer comes.
        void set.mutateAsync({ pipeline, output, open: false }).then(() => toastDone(t('outputs.closed', { output })), toastFailed)
      }
    >
      {t('outputs.close')}
    </Button>
  )
}
