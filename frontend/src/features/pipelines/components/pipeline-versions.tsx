import { Badge, Button, Code, Collapse, Table } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useTranslation } from 'react-i18next'

import { Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastDone, toastFailed } from '@/components/toasts'
import { useRestoreVersion, useVersions, type Pipeline } from '@/features/pipelines/api/pipelines'
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
        <Collapse expanded={shown}>
          <Code block mt="xs">
            {JSON.stringify(version.config, null, 2)}
          </Code>
        </Collapse>
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
