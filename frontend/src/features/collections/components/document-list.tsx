import { Alert, Badge, Button, Card, Code, Drawer, Group, Select, Stack, Text, TextInput, Title, UnstyledButton } from '@mantine/core'
import { useDebouncedCallback } from '@mantine/hooks'
import { IconSearch, IconTrash } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { DataTable } from '@/components/data-table'
import { Facts, type Fact } from '@/components/facts'
import { Scrolled } from '@/components/scrolled'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { moment, useDocuments, type CollectionDetail, type CollectionDocument } from '@/features/collections/api/collections'
import { bytes, count } from '@/lib/format'
import { useFilter } from '@/lib/use-filter'

const previewLength = 120

/** The documents of a partition, or those with a key, newest first. */
export function DocumentList({ collection }: { collection: CollectionDetail }) {
  const { t, i18n } = useTranslation()
  const { filter, set } = useFilter({})
  const search = useDebouncedCallback((value: string) => set('key', value), 300)
  const [shown, setShown] = useState<CollectionDocument | null>(null)
  // Without a choice the server takes the partition to which the key belongs, or the first one.
  const query = useDocuments(collection.id, {
    ...(filter.partition && { partition: Number(filter.partition) }),
    ...(filter.key && { key: filter.key }),
  })
  const partitions = Array.from({ length: collection.partition_states.length }, (_, number) => String(number))
  return (
    <Card withBorder>
      <Title order={2} size="h5" mb="sm">
        {t('collections.documents')}
      </Title>
      <Group mb="md" align="flex-end">
        <TextInput
          w={{ base: '100%', xs: 260 }}
          label={t('collections.key')}
          placeholder={t('collections.keyHint')}
          data-search
          leftSection={<IconSearch size={16} />}
          defaultValue={filter.key ?? ''}
          onChange={(event) => search(event.currentTarget.value)}
        />
        {partitions.length > 1 && (
          <Select
            w={{ base: '100%', xs: 190 }}
            label={t('collections.partition')}
            placeholder={t(filter.key ? 'collections.ofTheKey' : 'collections.theFirst')}
            clearable
            data={partitions}
            value={filter.partition ?? null}
            onChange={(value) => set('partition', value)}
          />
        )}
        {(query.data?.pages.length ?? 0) > 1 && (
          <Button variant="default" loading={query.isRefetching && !query.isFetchingNextPage} onClick={() => void query.refetch()}>
            {t('collections.refresh')}
          </Button>
        )}
      </Group>
      <Loaded query={query}>
        {({ pages }) => {
          const documents = pages.flatMap((page) => page.results)
          return (
            <>
              {documents.length ? (
                <DocumentTable documents={documents} onShow={setShown} />
              ) : (
                <Empty
                  title={t(filter.key ? 'collections.noneWithKey' : 'collections.noDocuments')}
                  hint={t(filter.key ? 'collections.noneWithKeyHint' : 'collections.noDocumentsHint')}
                />
              )}
              {query.hasNextPage && (
                <Group justify="center" mt="md">
                  <Button variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
                    {t('collections.older')}
                  </Button>
                </Group>
              )}
              {query.error && (
                <Alert color="red" mt="md">
                  {t('collections.stale')}
                </Alert>
              )}
            </>
          )
        }}
      </Loaded>
      <Drawer opened={shown !== null} onClose={() => setShown(null)} position="right" size="xl" title={t('collections.document')}>
        {shown && <Detail document={shown} language={i18n.language} />}
      </Drawer>
    </Card>
  )
}

export function DocumentTable({ documents, onShow }: { documents: CollectionDocument[]; onShow: (document: CollectionDocument) => void }) {
  const { t, i18n } = useTranslation()
  return (
    <DataTable
      label={t('collections.documents')}
      rows={documents}
      keyOf={({ offset }) => String(offset)}
      onOpen={onShow}
      columns={[
        {
          name: 'offset',
          title: t('collections.offset'),
          cell: (document) => (
            <UnstyledButton fz="sm" onClick={() => onShow(document)}>
              {count(document.offset, i18n.language)}
            </UnstyledButton>
          ),
          isLead: true,
        },
        { name: 'key', title: t('collections.key'), cell: ({ key }) => key ?? '–' },
        {
          name: 'value',
          title: t('collections.value'),
          cell: ({ value, deleted }) => (
            <Group gap="xs" wrap="nowrap">
              {deleted && <Deletion />}
              <Text size="xs" ff="monospace" style={{ overflowWrap: 'anywhere' }}>
                {value.slice(0, previewLength)}
                {value.length > previewLength && '…'}
              </Text>
            </Group>
          ),
          isWide: true,
        },
        { name: 'size', title: t('collections.size'), cell: (document) => bytes(document.bytes, i18n.language), isNumber: true, isStill: true },
        { name: 'time', title: t('collections.appended'), cell: ({ timestamp }) => <Time at={moment(timestamp)} />, isStill: true },
      ]}
    />
  )
}

function Deletion() {
  const { t } = useTranslation()
  return (
    <Badge color="gray" variant="light" tt="none" miw="max-content" leftSection={<IconTrash size={12} aria-hidden />}>
      {t('collections.deletion')}
    </Badge>
  )
}

function Detail({ document, language }: { document: CollectionDocument; language: string }) {
  const { t } = useTranslation()
  const facts: Fact[] = [
    [t('collections.offset'), count(document.offset, language)],
    [t('collections.key'), <Code key="key">{document.key ?? '–'}</Code>],
    [t('collections.appended'), <Time key="time" at={moment(document.timestamp)} />],
    [t('collections.size'), bytes(document.bytes, language)],
    ...(document.deleted ? [[t('common.status'), <Deletion key="deletion" />] satisfies Fact] : []),
    ...Object.entries(document.headers).map(([name, value]): Fact => [name, <Code key={name}>{value}</Code>]),
  ]
  return (
    <Stack>
      <Facts facts={facts} />
      <Text fw={600} size="sm">
        {t('collections.value')}
      </Text>
      <Scrolled mah={420} label={t('collections.value')}>
        <Code block>{document.value}</Code>
      </Scrolled>
      {document.encoding === 'base64' && <Note>{t('collections.base64')}</Note>}
      {document.is_cut && <Note>{t('collections.cut')}</Note>}
    </Stack>
  )
}

function Note({ children }: { children: React.ReactNode }) {
  return (
    <Text size="sm" c="dimmed">
      {children}
    </Text>
  )
}
