import { Badge, Box, Button, Card, Code, Collapse, Group, Stack, Text } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import {
  IconAlertTriangle,
  IconCircleCheck,
  IconLoader,
  IconPlayerPlay,
  IconPlayerStop,
  IconSquare,
} from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import { ConfirmButton } from '@/components/confirm-button'
import { DataTable } from '@/components/data-table'
import { Page } from '@/components/page'
import { Scrolled } from '@/components/scrolled'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import { useJobLog, useJobs, useSetJob, type Job } from '@/features/jobs/api/jobs'
import { ResourcesDialog } from '@/features/jobs/components/resources-dialog'
import { count } from '@/lib/format'
import { useMe } from '@/lib/queries/session'

const looks = {
  running: { color: 'gray', icon: IconCircleCheck },
  starting: { color: 'yellow', icon: IconLoader },
  stopping: { color: 'yellow', icon: IconLoader },
  stopped: { color: 'gray', icon: IconSquare },
  failed: { color: 'red', icon: IconAlertTriangle },
}

const colors = { running: undefined, resting: 'dimmed', waiting: 'red', failing: 'red', stopped: 'dimmed' }

export function JobsPage() {
  const { t } = useTranslation()
  const query = useJobs()
  return (
    <Page purpose={t('jobs.purpose')}>
      <Loaded query={query}>
        {(jobs) =>
          jobs.length ? (
            <Stack>
              {jobs.map((job) => (
                <JobCard key={job.name} job={job} />
              ))}
            </Stack>
          ) : (
            <Empty title={t('jobs.empty')} />
          )
        }
      </Loaded>
    </Page>
  )
}

function JobCard({ job }: { job: Job }) {
  const { t } = useTranslation()
  const set = useSetJob()
  const { data: me } = useMe()
  const [logShown, log] = useDisclosure()
  const [resourcesShown, resources] = useDisclosure()
  const { color, icon: Icon } = looks[job.status]
  const change = (run: boolean) => set.mutate({ name: job.name, run }, { onError: toastFailed })
  return (
    <Card withBorder>
      <Group justify="space-between">
        <Group gap="sm">
          <Text fw={600}>{job.name}</Text>
          <Badge color={color} variant="light" tt="none" leftSection={<Icon size={12} aria-hidden />}>
            {t(`jobs.status.${job.status}`)}
          </Badge>
        </Group>
        {me?.installation_admin ? (
          <Group gap="xs">
            <Button size="xs" variant="default" onClick={log.toggle} aria-expanded={logShown}>
              {t('jobs.log')}
            </Button>
            <Button size="xs" variant="default" onClick={resources.open}>
              {t('jobs.resources')}
            </Button>
            {job.desired === 'running' ? (
              <ConfirmButton
                size="xs"
                leftSection={<IconPlayerStop size={14} />}
                title={t('jobs.stopTitle', { name: job.name })}
                text={t('jobs.stopText')}
                onConfirm={() => change(false)}
              >
                {t('jobs.stop')}
              </ConfirmButton>
            ) : (
              <Button size="xs" leftSection={<IconPlayerPlay size={14} />} onClick={() => change(true)}>
                {t('jobs.start')}
              </Button>
            )}
          </Group>
        ) : (
          <Text size="xs" c="dimmed" maw={320}>
            {t('jobs.installationOnly')}
          </Text>
        )}
      </Group>
      <Group gap="xl" mt="md">
        <Fact label={t('jobs.startedAt')} value={<Time at={job.started_at} />} />
        <Fact label={t('jobs.restarts')} value={job.restarts} />
      </Group>
      {job.stages.length > 0 && <Stages stages={job.stages} />}
      {job.problem && <Fact label={t('jobs.problem')} value={job.problem} />}
      {job.last_error && <Fact label={t('jobs.lastError')} value={job.last_error} />}
      {resourcesShown && <ResourcesDialog job={job} onClose={resources.close} />}
      <Collapse expanded={logShown}>
        {logShown && <JobLog name={job.name} />}
      </Collapse>
    </Card>
  )
}

/** What the application does with messages, step by step, and how many wait for each. */
function Stages({ stages }: { stages: Job['stages'] }) {
  const { t, i18n } = useTranslation()
  return (
    <Box mt="md">
      <DataTable
        label={t('jobs.stages')}
        isSmall
        rows={stages}
        keyOf={({ name }) => name}
        columns={[
          { name: 'stage', title: t('jobs.stage'), cell: ({ name }) => t(`overview.stages.${name as 'adapting'}`, { defaultValue: name }), isLead: true },
          {
            name: 'state',
            title: t('common.status'),
            cell: ({ state, demand, pipelines }) => (
              <>
                <Text size="sm" c={colors[state]}>
                  {t(`jobs.stageState.${state}`)}
                </Text>
                {state !== 'stopped' && (
                  <Text size="xs" c="dimmed">
                    {t(`jobs.demand.${demand}`, { count: pipelines })}
                  </Text>
                )}
              </>
            ),
          },
          { name: 'slots', title: t('jobs.slots'), cell: ({ slots }) => count(slots, i18n.language), isNumber: true },
          { name: 'lag', title: t('jobs.waiting'), cell: ({ lag }) => (typeof lag === 'number' ? count(lag, i18n.language) : null), isNumber: true },
        ]}
      />
    </Box>
  )
}

function Fact({ label, value }: { label: string; value: React.ReactNode }) {
  return (
    <div>
      <Text size="xs" c="dimmed">
        {label}
      </Text>
      <Text size="sm" component="div" style={{ overflowWrap: 'anywhere' }}>
        {value}
      </Text>
    </div>
  )
}

function JobLog({ name }: { name: string }) {
  const { t } = useTranslation()
  const log = useJobLog(name)
  return (
    <Loaded query={log}>
      {({ lines }) => (
        <Scrolled mah={360} mt="md" label={t('jobs.log')}>
          <Code block>{lines.join('\n')}</Code>
        </Scrolled>
      )}
    </Loaded>
  )
}
