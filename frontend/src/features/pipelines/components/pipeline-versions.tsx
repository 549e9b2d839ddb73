import { Badge, Button, Code, Collapse, Select, Stack, Table } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { ChangeList } from '@/components/change-list'
import { Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastDone, toastFailed } from '@/components/toasts'
import { useRestoreVersion, useVersionChanges, useVersions, type Pipeline } from '@/features/pipelines/api/pipelines'
import type { components } from '@/lib/api/schema'

type Version = components['schemas']['Version']

export function PipelineVersions({ pipeline }: { pipeline: Pipeline }) {
  const { t } = useTranslation()
  const versions = useVersions(pipeline.id)
  return (
    <Loaded query={versions}>
      {(found) => (
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
              {found.map((version) => (
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
  const restore = useRestoreVersion(pipeline.id)
  return (
    <Table.Tr>
      <Table.Td>
        <Button variant="subtle" size="compact-sm" onClick={toggle} aria-expanded={shown}>
          {version.number}
        </Button>{' '}
        {version.number === pipeline.published_version && (
          <Badge variant="light" color="gray" tt="none">
            {t('pipelines.inForce')}
          </Badge>
        )}
        <Collapse expanded={shown}>{shown && <VersionDetail pipeline={pipeline} version={version} />}</Collapse>
      </Table.Td>
      <Table.Td>{version.author}</Table.Td>
      <Table.Td>
        <Time at={version.created_at} />
      </Table.Td>
      <Table.Td ta="right">
        {version.number !== pipeline.version && (
          <Button
            size="compact-xs"
            variant="default"
            onClick={() =>
              restore.mutate(version.number, { onSuccess: () => toastDone(t('common.saved')), onError: toastFailed })
            }
          >
            {t('pipelines.restore')}
          </Button>
        )}
      </Table.Td>
    </Table.Tr>
  )
}

/** What the version changed, and all that it says. */
function VersionDetail({ pipeline, version }: { pipeline: Pipeline; version: Version }) {
  const { t } = useTranslation()
  const [since, setSince] = useState(String(version.number - 1))
  const changes = useVersionChanges(pipeline.id, version.number, Number(since))
  const others = Array.from({ length: pipeline.version }, (_, index) => String(index + 1))
  return (
    <Stack gap="sm" mt="xs">
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
          <Loaded query={changes}>{(found) => <ChangeList changes={found} />}</Loaded>
        </>
      )}
      <Code block>{JSON.stringify(version.config, null, 2)}</Code>
    </Stack>
  )
}
