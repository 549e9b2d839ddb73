import { Badge, Button, Code, Group, Select, Stack, Table } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useState, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import { ChangeList } from '@/components/change-list'
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
  return (
    <Loaded query={versions}>
      {(newestFirst) => (
        <Table.ScrollContainer minWidth={560}>
          <Table>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('pipelines.version')}</Table.Th>
                <Table.Th>{t('pipelines.author')}</Table.Th>
                <Table.Th>{t('common.updated')}</Table.Th>
                <Table.Th />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {newestFirst.map((version) => (
                <VersionRow key={version.number} pipeline={pipeline} version={version} />
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
    </Loaded>
  )
}

function VersionRow({ pipeline, version }: { pipeline: Pipeline; version: Version }) {
  const { t } = useTranslation()
  const [shown, { toggle }] = useDisclosure()
  return (
    <>
      <Table.Tr>
        <Table.Td>
          <Button variant="subtle" size="compact-sm" onClick={toggle} aria-expanded={shown}>
            {version.number}
          </Button>{' '}
          {version.number === pipeline.published_version && (
            <Badge variant="light" color="gray" tt="none">
              {t('pipelines.isPublished')}
            </Badge>
          )}
        </Table.Td>
        <Table.Td>{version.author}</Table.Td>
        <Table.Td>
          <Time at={version.created_at} />
        </Table.Td>
        <Table.Td>
          <Group gap="xs" justify="flex-end" wrap="nowrap">
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
          </Group>
        </Table.Td>
      </Table.Tr>
      {shown && (
        <Table.Tr>
          <Table.Td colSpan={4}>
            <VersionDetail pipeline={pipeline} version={version} />
          </Table.Td>
        </Table.Tr>
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
