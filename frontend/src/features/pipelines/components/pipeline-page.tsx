import { Alert, Button, Group, List, Tabs, Text } from '@mantine/core'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, useNavigate, useParams } from 'react-router'

import { ConfirmButton } from '@/components/confirm-button'
import { Copyable } from '@/components/copyable'
import { Page } from '@/components/page'
import { Loaded } from '@/components/states'
import { toastDone, toastFailed } from '@/components/toasts'
import { useDeletePipeline, usePipeline, usePipelineAction } from '@/features/pipelines/api/pipelines'
import { PipelineOverview } from '@/features/pipelines/components/pipeline-overview'
import { PipelineStatus } from '@/features/pipelines/components/pipeline-status'
import { PipelineVersions } from '@/features/pipelines/components/pipeline-versions'
import { Playground } from '@/features/pipelines/components/playground'
import type { Pipeline } from '@/lib/queries/pipelines'

interface Props {
  /** Where a pipeline delivers to, and how that goes. */
  outputs: (pipeline: Pipeline) => ReactNode
}

export function PipelinePage({ outputs }: Props) {
  const { id = '' } = useParams()
  const query = usePipeline(id)
  return <Loaded query={query}>{(pipeline) => <PipelineDetail pipeline={pipeline} outputs={outputs} />}</Loaded>
}

function PipelineDetail({ pipeline, outputs }: Props & { pipeline: Pipeline }) {
  const { t } = useTranslation()
  const { tab = 'overview' } = useParams()
  const navigate = useNavigate()
  return (
    <Page
      title={pipeline.name}
      purpose={
        <Group gap="xs">
          <PipelineStatus pipeline={pipeline} />
          {pipeline.published_version !== null && t('pipelines.published', { version: pipeline.published_version })}
        </Group>
      }
      action={<Actions pipeline={pipeline} />}
    >
      {pipeline.published_version !== pipeline.version && pipeline.provisioning?.state !== 'provisioning' && (
        <Unpublished pipeline={pipeline} />
      )}
      {pipeline.provisioning && <Provisioning provisioning={pipeline.provisioning} />}
      {pipeline.failure && (
        <Alert color="red" mb="md" title={t('pipelines.failedTitle')}>
          {pipeline.failure}
        </Alert>
      )}
      {(pipeline.config.input?.type ?? 'http') === 'http' && <Address url={pipeline.ingest_url} />}
      <Tabs
        value={tab}
        onChange={(next) => void navigate(`/pipelines/${pipeline.id}${next === 'overview' ? '' : `/${next}`}`)}
        keepMounted={false}
      >
        <Tabs.List mb="md">
          <Tabs.Tab value="overview">{t('pipelines.overview')}</Tabs.Tab>
          <Tabs.Tab value="outputs">{t('outputs.title')}</Tabs.Tab>
          <Tabs.Tab value="playground">{t('playground.title')}</Tabs.Tab>
          <Tabs.Tab value="versions">{t('pipelines.versions')}</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="overview">
          <PipelineOverview pipeline={pipeline} />
        </Tabs.Panel>
        <Tabs.Panel value="outputs">{outputs(pipeline)}</Tabs.Panel>
        <Tabs.Panel value="playground">
          <Playground pipeline={pipeline} />
        </Tabs.Panel>
        <Tabs.Panel value="versions">
          <PipelineVersions pipeline={pipeline} />
        </Tabs.Panel>
      </Tabs>
    </Page>
  )
}

function Actions({ pipeline }: { pipeline: Pipeline }) {
  const { t } = useTranslation()
  const navigate = useNavigate()
  const act = usePipelineAction(pipeline.id)
  const remove = useDeletePipeline()
  return (
    <Group gap="xs">
      {pipeline.published_version !== null && (
        <Button
          variant="default"
          loading={act.isPending}
          onClick={() => act.mutate(pipeline.paused ? 'resume' : 'pause', { onError: toastFailed })}
        >
          {pipeline.paused ? t('pipelines.resume') : t('pipelines.pause')}
        </Button>
      )}
      <ConfirmButton
        title={t('pipelines.deleteTitle', { name: pipeline.name })}
        text={t('pipelines.deleteText')}
        onConfirm={() =>
          remove.mutate(pipeline.id, { onSuccess: () => void navigate('/pipelines'), onError: toastFailed })
        }
      >
        {t('common.delete')}
      </ConfirmButton>
      <Button component={Link} to={`/pipelines/${pipeline.id}/edit`}>
        {t('common.edit')}
      </Button>
    </Group>
  )
}

/** What a version waits for in other systems, or why it could not be put in force. */
function Provisioning({ provisioning }: { provisioning: NonNullable<Pipeline['provisioning']> }) {
  const { t } = useTranslation()
  const failed = provisioning.state === 'failed'
  const title = t(failed ? 'pipelines.provisioningFailed' : 'pipelines.provisioningTitle', { version: provisioning.version })
  return (
    <Alert color={failed ? 'red' : 'blue'} mb="md" title={title}>
      {provisioning.cause}
      <List size="sm">
        {provisioning.steps.map((step) => (
          <List.Item key={step.kind}>
            {t(`pipelines.registrations.${step.kind}`, { defaultValue: step.kind })}:{' '}
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
  const act = usePipelineAction(pipeline.id)
  return (
    <Alert color="yellow" mb="md">
      <Group justify="space-between">
        <Text size="sm">{t('pipelines.unpublished', { version: pipeline.version })}</Text>
        <Button
          size="xs"
          loading={act.isPending}
          onClick={() =>
            act.mutate('publish', {
              onSuccess: ({ provisioning }) => {
                if (!provisioning) toastDone(t('pipelines.published', { version: pipeline.version }))
              },
              onError: toastFailed,
            })
          }
        >
          {t('pipelines.publish', { version: pipeline.version })}
        </Button>
      </Group>
    </Alert>
  )
}

function Address({ url }: { url: string }) {
  const { t } = useTranslation()
  return (
    <Group gap="xs" mb="md">
      <Text size="sm" c="dimmed">
        {t('pipelines.address')}
      </Text>
      <Copyable value={url} prefix="POST " />
    </Group>
  )
}
