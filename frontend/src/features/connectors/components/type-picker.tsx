import { Button } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { IconPlus } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'
import { useNavigate } from 'react-router'

import { Picker } from '@/components/picker'
import { useConnectorTypes } from '@/lib/queries/connectors'
import { useMay } from '@/lib/queries/session'
import { useServerTexts } from '@/lib/texts'

/** By the kind of system; types that are not named here stand in the last group. */
const groups = {
  http: ['http', 'webhook', 'n8n'],
  messages: ['kafka', 'rabbitmq', 'nats', 'mqtt', 'redis_stream', 'sqs', 'kinesis', 'pubsub'],
  databases: ['sql', 'mongodb', 'elasticsearch', 'postgres_cdc'],
  files: ['s3', 'gcs', 'azure_blob', 'sftp', 'local_files'],
} as const
type Group = keyof typeof groups | 'other'

const groupOf = (type: string): Group =>
  (Object.keys(groups) as (keyof typeof groups)[]).find((group) => (groups[group] as readonly string[]).includes(type)) ?? 'other'

/** Chooses the system that a new connector is for; one that this installation lacks something for says what. */
export function NewConnector() {
  const { t } = useTranslation()
  const text = useServerTexts()
  const navigate = useNavigate()
  const types = useConnectorTypes().data ?? []
  const [opened, { open, close }] = useDisclosure()
  const mayCreate = useMay('editor')
  const shown = ([...Object.keys(groups), 'other'] as Group[]).map((group) => ({
    label: t(`connectors.groups.${group}`),
    choices: types
      .filter(({ type }) => groupOf(type) === group)
      .map(({ type, title, description, unavailable }) => ({
        id: type,
        title: text(title),
        description: text(description),
        unavailable: unavailable && text(unavailable),
      })),
  }))
  if (!mayCreate) return null
  return (
    <>
      <Button leftSection={<IconPlus size={16} />} onClick={open}>
        {t('connectors.create')}
      </Button>
      <Picker
        opened={opened}
        onClose={close}
        title={t('connectors.create')}
        search={t('connectors.searchType')}
        groups={shown}
        onPick={(type) => void navigate(`/connectors/new/${type}`)}
      />
    </>
  )
}
