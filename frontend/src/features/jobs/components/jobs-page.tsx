import { Badge, Button, Card, Code, Collapse, Group, ScrollArea, SimpleGrid, Stack, Text } from '@mantine/core'
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
import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import { useJobLog, useJobs, useSetJob } from '@/features/jobs/api/jobs'
import type { components } from '@/lib/api/schema'

type Job = components['schemas']['Job']

const looks = {
  running: { color: 'gray', icon: IconCircleCheck },
  starting: { color: 'yellow', icon: IconLoader },
  stopping: { color: 'yellow', icon: IconLoader },
  stopped: { color: 'gray', icon: IconSquare },
  failed: { color: 'red', icon: IconAlertTriangle },
}

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
  const [logShown, log] = useDisclosure()
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
        <Group gap="xs">
          <Button size="xs" variant="default" onClick={log.toggle} aria-expanded={logShown}>
            {t('jobs.log')}
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
      </Group>
      <SimpleGrid cols={{ base: 1, sm: 3 }} mt="md">
        <Fact label={t('jobs.startedAt')} value={<Time at={job.started_at} />} />
        <Fact label={t('jobs.restarts')} value={job.restarts} />
        <Fact
          label={t('jobs.stages')}
          value={job.stages.map((stage) => (
            <div key={stage.name}>
              {stage.name}: {stage.alive ? t('jobs.stageAlive') : t('jobs.stageDead')}
              {typeof stage.lag === 'number' && `, ${t('jobs.lag', { count: stage.lag })}`}
            </div>
          ))}
        />
      </SimpleGrid>
      {job.last_error && <Fact label={t('jobs.lastError')} value={job.last_error} />}
      <Collapse expanded={logShown}>
        <JobLog name={job.name} shown={logShown} />
      </Collapse>
    </Card>
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

function JobLog({ name, shown }: { name: string; shown: boolean }) {
  const log = useJobLog(name, shown)
  return (
    <Loaded query={log}>
      {({ lines }) => (
        <ScrollArea.Autosize mah={360} mt="md">
          <Code block>{lines.join('\n')}</Code>
        </ScrollArea.Autosize>
      )}
    </Loaded>
  )
}
