import { Alert, Button, Card, Drawer, Group, List, Skeleton, Stack, Tabs, Text } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { IconSend } from '@tabler/icons-react'
import { lazy, Suspense, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, useNavigate, useParams } from 'react-router'

import { ConfirmButton } from '@/components/confirm-button'
import { Copyable } from '@/components/copyable'
import { FindingReason, FindingRow } from '@/components/finding-row'
import { LoadedPage, Page } from '@/components/page'
import { PipelineState } from '@/components/pipeline-state'
import { toastFailed } from '@/components/toasts'
import { useDeletePipeline, usePipeline, usePipelineAction } from '@/features/pipelines/api/pipelines'
import { isOfFlow, statusOf, troublesOf, type Finding } from '@/lib/pipeline-status'
import { useConditions } from '@/lib/queries/conditions'
import type { Pipeline } from '@/lib/queries/pipelines'
import { useMay } from '@/lib/queries/session'

const PipelineOverview = lazy(async () => ({ default: (await import('@/features/pipelines/components/pipeline-overview')).PipelineOverview }))
const PipelineVersions = lazy(async () => ({ default: (await import('@/features/pipelines/components/pipeline-versions')).PipelineVersions }))
const PublishDialog = lazy(async () => ({ default: (await import('@/features/pipelines/components/publish-dialog')).PublishDialog }))
const SendSample = lazy(async () => ({ default: (await import('@/components/send-sample')).SendSample }))

interface Props {
  /** Where a pipeline delivers to, and how that goes. */
  outputs: (pipeline: Pipeline) => ReactNode
  /** One of them, by its name. */
  output: (pipeline: Pipeline, name: string) => ReactNode
}

export function PipelinePage(props: Props) {
  const { id = '' } = useParams()
  const query = usePipeline(id)
  return <LoadedPage query={query}>{(pipeline) => <PipelineDetail pipeline={pipeline} {...props} />}</LoadedPage>
}

function PipelineDetail({ pipeline, outputs, output }: Props & { pipeline: Pipeline }) {
  const { t } = useTranslation()
  const { tab = 'overview' } = useParams()
  const navigate = useNavigate()
  const status = statusOf(pipeline, useConditions().data)
  return (
    <Page
      title={pipeline.name}
      purpose={
        <Group gap="xs">
          <PipelineState state={status.state} />
          {pipeline.published_version !== null && t('pipelines.published', { version: pipeline.published_version })}
          {isOfFlow(status) && <FindingReason finding={status} />}
        </Group>
      }
      action={<Actions pipeline={pipeline} />}
    >
      {pipeline.published_version !== pipeline.version && pipeline.provisioning?.state !== 'provisioning' && (
        <Unpublished pipeline={pipeline} />
      )}
      {pipeline.provisioning && <Provisioning provisioning={pipeline.provisioning} />}
      <Troubles pipeline={pipeline.id} findings={troublesOf(status)} />
      {pipeline.ingest_url !== null && pipeline.published_version !== null && <Address pipeline={pipeline} url={pipeline.ingest_url} />}
      <Tabs
        value={tab}
        onChange={(next) => void navigate(`/pipelines/${pipeline.id}${next === 'overview' ? '' : `/${next}`}`)}
        keepMounted={false}
      >
        <Tabs.List mb="md">
          <Tabs.Tab value="overview">{t('pipelines.overview')}</Tabs.Tab>
          <Tabs.Tab value="outputs">{t('outputs.title')}</Tabs.Tab>
          <Tabs.Tab value="versions">{t('pipelines.versions')}</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="overview">
          <Suspense fallback={<Skeleton height={480} />}>
            <PipelineOverview pipeline={pipeline} output={(name) => output(pipeline, name)} />
          </Suspense>
        </Tabs.Panel>
        <Tabs.Panel value="outputs">{outputs(pipeline)}</Tabs.Panel>
        <Tabs.Panel value="versions">
          <Suspense fallback={<Skeleton height={160} />}>
            <PipelineVersions pipeline={pipeline} />
          </Suspense>
        </Tabs.Panel>
      </Tabs>
    </Page>
  )
}

/** What is wrong with it, each with the button that helps. */
function Troubles({ pipeline, findings }: { pipeline: string; findings: Finding[] }) {
  if (!findings.length) return null
  return (
    <Card withBorder mb="md">
      <Stack gap="md">
        {findings.map((finding) => (
          <FindingRow key={`${finding.state} ${finding.place} ${finding.reason} ${finding.error}`} pipeline={pipeline} finding={finding} />
        ))}
      </Stack>
    </Card>
  )
}

function Actions({ pipeline }: { pipeline: Pipeline }) {
  const { t } = useTranslation()
  const navigate = useNavigate()
  const act = usePipelineAction(pipeline.id)
  const remove = useDeletePipeline()
  const mayEdit = useMay('editor')
  const mayAct = useMay('operator')
  return (
    <Group gap="xs">
      {mayAct && pipeline.published_version !== null && (
        <Button
          variant="default"
          loading={act.isPending}
          onClick={() => act.mutate(pipeline.paused ? 'resume' : 'pause', { onError: toastFailed })}
        >
          {pipeline.paused ? t('pipelines.resume') : t('pipelines.pause')}
        </Button>
      )}
      {mayEdit && (
        <ConfirmButton
          title={t('pipelines.deleteTitle', { name: pipeline.name })}
          text={t('pipelines.deleteText')}
          typed={pipeline.name}
          hindrance={() => Promise.resolve(pipeline.published_version !== null && !pipeline.paused ? t('pipelines.pauseFirst') : undefined)}
          onConfirm={() => remove.mutate(pipeline.id, { onSuccess: () => void navigate('/pipelines'), onError: toastFailed })}
        >
          {t('common.delete')}
        </ConfirmButton>
      )}
      <Button component={Link} to={`/pipelines/${pipeline.id}/edit${mayEdit ? '' : '?side=try'}`}>
        {t(mayEdit ? 'common.edit' : 'pipelines.try')}
      </Button>
    </Group>
  )
}

/** What a version waits for in other systems, or why it could not be published. */
function Provisioning({ provisioning }: { provisioning: NonNullable<Pipeline['provisioning']> }) {
  const { t } = useTranslation()
  const failed = provisioning.state === 'failed'
  const title = t(failed ? 'pipelines.provisioningFailed' : 'pipelines.provisioningTitle', { version: provisioning.version })
  return (
    <Alert color={failed ? 'red' : 'blue'} mb="md" title={title}>
      <List size="sm">
        {provisioning.steps.map((step) => (
          <List.Item key={`${step.kind} ${step.place}`}>
            {t(`pipelines.registrations.${step.kind}`, { defaultValue: step.kind })}
            {step.place && ` (${step.place})`}:{' '}
            {t(`pipelines.registrationStates.${step.state ?? 'pending'}`)}
            {!failed && step.error && ` (${step.error})`}
          </List.Item>
        ))}
      </List>
    </Alert>
  )
}

function Unpublished({ pipeline }: { pipeline: Pipeline }) {
  const { t } = useTranslation()
  const [opened, { open, close }] = useDisclosure()
  const mayPublish = useMay('editor')
  return (
    <Alert color="yellow" mb="md">
      <Group justify="space-between">
        <Text size="sm">{t('pipelines.unpublished', { version: pipeline.version })}</Text>
        {mayPublish && (
          <Button size="xs" onClick={open}>
            {t('pipelines.publish', { version: pipeline.version })}
          </Button>
        )}
      </Group>
      <Suspense>
        <PublishDialog pipeline={pipeline} opened={opened} onClose={close} />
      </Suspense>
    </Alert>
  )
}

/** Where messages are posted, the command that does it, and a message that is sent from here. */
function Address({ pipeline, url }: { pipeline: Pipeline; url: string }) {
  const { t } = useTranslation()
  const [opened, { open, close }] = useDisclosure()
  return (
    <Group gap="xs" mb="md">
      <Text size="sm" c="dimmed">
        {t('pipelines.address')}
      </Text>
      <Copyable value={url} prefix="POST " />
      <Button size="compact-xs" variant="default" leftSection={<IconSend size={12} />} onClick={open}>
        {t('sample.title')}
      </Button>
      <Drawer opened={opened} onClose={close} position="right" size="lg" title={t('sample.title')}>
        <Suspense fallback={<Skeleton height={240} />}>
          <SendSample pipeline={pipeline.id} name={pipeline.name} url={url} />
        </Suspense>
      </Drawer>
    </Group>
  )
}
