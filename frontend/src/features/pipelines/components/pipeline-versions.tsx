import { Anchor, Badge, Button, Code, Group, Select, Stack } from '@mantine/core'
import { useState, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import { ChangeList } from '@/components/change-list'
import { DataTable } from '@/components/data-table'
import { Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastDone, toastFailed } from '@/components/toasts'
import { useReturnToVersion, useVersionChanges, useVersions } from '@/features/pipelines/api/pipelines'
import type { components } from '@/lib/api/schema'
import type { Pipeline } from '@/lib/queries/pipelines'

type Version = components['schemas']['Version']

export function PipelineVersions({ pipeline }: { pipeline: Pipeline }) {
  const { t } = useTranslation()
  const versions = useVersions(pipeline.id)
  const [shown, setShown] = useState<number | null>(null)
  return (
    <Loaded query={versions}>
      {(newestFirst) => (
        <DataTable
          label={t('pipelines.versions')}
          isFramed
          rows={newestFirst}
          keyOf={({ number }) => String(number)}
          actions={(version) => <ReturnButtons pipeline={pipeline} version={version} />}
          detail={(version) => shown === version.number && <VersionDetail pipeline={pipeline} version={version} />}
          columns={[
            {
              name: 'number',
              title: t('pipelines.version'),
              cell: ({ number }) => (
                <Group gap="xs">
                  <Anchor
                    component="button"
                    type="button"
                    onClick={() => setShown(shown === number ? null : number)}
                    aria-expanded={shown === number}
                  >
                    {number}
                  </Anchor>
                  {number === pipeline.published_version && (
                    <Badge variant="light" color="gray" tt="none">
                      {t('pipelines.isPublished')}
                    </Badge>
                  )}
                </Group>
              ),
              isLead: true,
            },
            { name: 'note', title: t('publish.note'), cell: ({ note }) => note || '–', isWide: true },
            { name: 'author', title: t('pipelines.author'), cell: ({ author }) => author },
            { name: 'created', title: t('common.updated'), cell: ({ created_at }) => <Time at={created_at} />, isStill: true },
          ]}
        />
      )}
    </Loaded>
  )
}

function ReturnButtons({ pipeline, version }: { pipeline: Pipeline; version: Version }) {
  const { t } = useTranslation()
  return (
    <>
      {version.number !== pipeline.version && (
        <ReturnButton pipeline={pipeline} version={version} how="restore" done={t('common.saved')}>
          {t('pipelines.restore')}
        </ReturnButton>
      )}
      {pipeline.published_version !== null && version.number < pipeline.published_version && (
        <ReturnButton
          pipeline={pipeline}
          version={version}
          how="roll-back"
          done={t('pipelines.rolledBack', { version: version.number })}
        >
          {t('pipelines.rollBack')}
        </ReturnButton>
      )}
    </>
  )
}

/** Brings the version back. */
function ReturnButton(props: {
  pipeline: Pipeline
  version: Version
  how: Parameters<typeof useReturnToVersion>[1]
  done: string
  children: ReactNode
}) {
  const back = useReturnToVersion(props.pipeline.id, props.how)
  return (
    <Button
      size="compact-xs"
      variant="default"
      loading={back.isPending}
      onClick={() =>
        back.mutate(props.version.number, { onSuccess: () => toastDone(props.done), onError: toastFailed })
      }
    >
      {props.children}
    </Button>
  )
}

/** What the version changed, and the whole of it. */
function VersionDetail({ pipeline, version }: { pipeline: Pipeline; version: Version }) {
  const { t } = useTranslation()
  const [since, setSince] = useState(String(version.number - 1))
  const changes = useVersionChanges(pipeline.id, version.number, Number(since))
  const others = Array.from({ length: pipeline.version }, (_, index) => String(index + 1))
  return (
    <Stack gap="sm">
      {version.number > 1 && (
        <>
          <Select
            w={200}
            size="xs"
            label={t('changes.since')}
            allowDeselect={false}
            data={others.filter((other) => other !== String(version.number)).map((value) => ({ value, label: t('changes.version', { number: value }) }))}
            value={since}
            onChange={(value) => value && setSince(value)}
          />
          <Loaded query={changes}>{(differences) => <ChangeList changes={differences} />}</Loaded>
        </>
      )}
      <Code block style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }}>
        {JSON.stringify(version.config, null, 2)}
      </Code>
    </Stack>
  )
}
