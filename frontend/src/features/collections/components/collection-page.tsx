import { Alert, Button, Card, Code, SimpleGrid, Stack, Text, Title } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'
import { Link, useParams } from 'react-router'

import { Copyable } from '@/components/copyable'
import { DataTable } from '@/components/data-table'
import { Facts, type Fact } from '@/components/facts'
import { Figure } from '@/components/figure'
import { Page } from '@/components/page'
import { Scrolled } from '@/components/scrolled'
import { Loaded } from '@/components/states'
import { Time, useAgo } from '@/components/time'
import { moment, useCollection, type CollectionDetail } from '@/features/collections/api/collections'
import { DocumentList } from '@/features/collections/components/document-list'
import { ResetButton } from '@/features/collections/components/reset-button'
import { bytes, count } from '@/lib/format'
import { includes, useRole } from '@/lib/queries/session'

/** One collection: what it holds, how it is kept, and its documents. */
export function CollectionPage() {
  const { id = '' } = useParams()
  const query = useCollection(id)
  const { t } = useTranslation()
  const collection = query.data
  return (
    <Page title={collection?.name} purpose={t('collections.purposeOne')} action={collection && <Actions collection={collection} />}>
      <Loaded query={query}>
        {(collection) => (
          <Stack gap="lg">
            {collection.unavailable && (
              <Alert color="red" icon={<IconAlertTriangle />} title={t('collections.unavailable')}>
                {collection.unavailable}
              </Alert>
            )}
            {!collection.unavailable && <Figures collection={collection} />}
            {!collection.unavailable && <Partitions collection={collection} />}
            <Reading collection={collection} />
            {!collection.unavailable && <DocumentList collection={collection} />}
            <Configuration collection={collection} />
          </Stack>
        )}
      </Loaded>
    </Page>
  )
}

function Actions({ collection }: { collection: CollectionDetail }) {
  const role = useRole()
  return includes(role, 'editor') && collection.partition_states.length > 0 && <ResetButton collection={collection} />
}

function Figures({ collection }: { collection: CollectionDetail }) {
  const { t, i18n } = useTranslation()
  const newest = useAgo(moment(collection.newest))
  return (
    <SimpleGrid cols={{ base: 2, md: 4 }}>
      <Figure label={t('collections.documents')} value={count(collection.documents, i18n.language)} />
      <Figure label={t('collections.size')} value={bytes(collection.bytes, i18n.language)} />
      <Figure label={t('collections.newest')} value={newest} />
      <Figure label={t('collections.epoch')} value={count(collection.leader_epoch, i18n.language)} note={t('collections.epochNote')} />
    </SimpleGrid>
  )
}

function Partitions({ collection }: { collection: CollectionDetail }) {
  const { t, i18n } = useTranslation()
  const rows = collection.partition_states
  if (!rows.length) return null
  return (
    <Card withBorder>
      <Title order={2} size="h5" mb="sm">
        {t('collections.partitions')}
      </Title>
      <DataTable
        label={t('collections.partitions')}
        rows={rows}
        keyOf={({ partition }) => String(partition)}
        columns={[
          { name: 'partition', title: t('collections.partition'), cell: ({ partition }) => partition, isLead: true },
          { name: 'start', title: t('collections.start'), cell: (row) => count(row.start_offset, i18n.language), isNumber: true },
          { name: 'end', title: t('collections.end'), cell: (row) => count(row.end_offset, i18n.language), isNumber: true },
          { name: 'documents', title: t('collections.documents'), cell: (row) => count(row.documents, i18n.language), isNumber: true },
          { name: 'size', title: t('collections.size'), cell: (row) => bytes(row.bytes, i18n.language), isNumber: true, isStill: true },
          { name: 'files', title: t('collections.files'), cell: (row) => count(row.files, i18n.language), isNumber: true },
          { name: 'oldest', title: t('collections.oldest'), cell: (row) => <Time at={moment(row.oldest)} />, isStill: true },
          { name: 'newest', title: t('collections.newest'), cell: (row) => <Time at={moment(row.newest)} />, isStill: true },
        ]}
      />
    </Card>
  )
}

/** What consumers and engines have to be told. */
function Reading({ collection }: { collection: CollectionDetail }) {
  const { t } = useTranslation()
  return (
    <Card withBorder>
      <Title order={2} size="h5" mb="sm">
        {t('collections.reading')}
      </Title>
      <Facts
        facts={[
          [t('collections.topic'), <Copyable key="topic" value={collection.topic} />],
          [t('collections.table'), <Copyable key="table" value={collection.table} />],
        ]}
      />
    </Card>
  )
}

function Configuration({ collection }: { collection: CollectionDetail }) {
  const { t, i18n } = useTranslation()
  const role = useRole()
  const { keep_hours: hours, keep_bytes: size } = collection
  const limits = [hours !== null && t('collections.keptHours', { count: hours }), size !== null && t('collections.keptBytes', { size: bytes(size, i18n.language) })]
  const facts: Fact[] = [
    [t('collections.kept'), limits.filter(Boolean).join(', ') || t('collections.keptForever')],
    [t('collections.reduced'), t(collection.reduce === 'last_by_key' ? 'collections.lastByKey' : 'collections.allDocuments')],
    [t('collections.values'), collection.values === 'avro' ? 'Avro' : 'JSON'],
    [t('collections.deletions'), t(collection.deletions === 'cdc' ? 'collections.flagged' : 'collections.tombstones')],
  ]
  return (
    <Card withBorder>
      <Title order={2} size="h5" mb="sm">
        {t('collections.configuration')}
      </Title>
      <Facts facts={facts} />
      <Text size="sm" fw={600} mt="md" mb="xs">
        {t('collections.schema')}
      </Text>
      {collection.avro_schema ? (
        <Scrolled mah={280} label={t('collections.schema')}>
          <Code block>{JSON.stringify(collection.avro_schema, null, 2)}</Code>
        </Scrolled>
      ) : (
        <Text size="sm" c="dimmed">
          {t('collections.noSchema')}
        </Text>
      )}
      {includes(role, 'editor') && (
        <Button component={Link} to={`/connectors/${collection.id}/edit`} variant="default" size="xs" mt="md" w="fit-content">
          {t('collections.edit')}
        </Button>
      )}
    </Card>
  )
}
