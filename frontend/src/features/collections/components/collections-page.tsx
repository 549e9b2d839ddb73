import { Anchor, Button, Text } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import { Link, useNavigate } from 'react-router'

import { DataTable } from '@/components/data-table'
import { LoadMore } from '@/components/load-more'
import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { moment, useCollections, type Collection } from '@/features/collections/api/collections'
import { StreamList } from '@/features/collections/components/stream-list'
import { bytes, count } from '@/lib/format'
import { includes, useRole } from '@/lib/queries/session'

/** Every collection of the workspace, what it holds, and the change streams. */
export function CollectionsPage() {
  const { t } = useTranslation()
  const query = useCollections()
  const add = useAdd()
  return (
    <Page purpose={t('collections.purpose')} action={add}>
      <Loaded query={query}>
        {({ pages }) => {
          const all = pages.flatMap((page) => page.results)
          return all.length ? (
            <>
              <CollectionTable collections={all} />
              <LoadMore query={query} />
            </>
          ) : (
            <Empty title={t('collections.empty')} hint={t('collections.emptyHint')} action={add} />
          )
        }}
      </Loaded>
      <StreamList />
    </Page>
  )
}

function useAdd() {
  const { t } = useTranslation()
  const role = useRole()
  if (!includes(role, 'editor')) return undefined
  return (
    <Button component={Link} to="/connectors/new/collection">
      {t('collections.new')}
    </Button>
  )
}

export function CollectionTable({ collections }: { collections: Collection[] }) {
  const { t, i18n } = useTranslation()
  const navigate = useNavigate()
  const known = ({ unavailable }: Collection, text: string) => (unavailable ? '–' : text)
  return (
    <DataTable
      label={t('collections.title')}
      isFramed
      rows={collections}
      keyOf={({ id }) => id}
      onOpen={({ id }) => void navigate(`/collections/${id}`)}
      columns={[
        {
          name: 'name',
          title: t('common.name'),
          cell: ({ id, name, unavailable }) => (
            <>
              <Anchor component={Link} to={`/collections/${id}`} fw={500}>
                {name}
              </Anchor>
              {unavailable && (
                <Text size="xs" c="red" style={{ overflowWrap: 'anywhere' }}>
                  {t('collections.unavailable')}: {unavailable}
                </Text>
              )}
            </>
          ),
          sortBy: ({ name }) => name,
          isLead: true,
        },
        {
          name: 'documents',
          title: t('collections.documents'),
          cell: (one) => known(one, count(one.documents, i18n.language)),
          sortBy: ({ documents }) => documents,
          isNumber: true,
        },
        {
          name: 'size',
          title: t('collections.size'),
          cell: (one) => known(one, bytes(one.bytes, i18n.language)),
          sortBy: ({ bytes: size }) => size,
          isNumber: true,
          isStill: true,
        },
        { name: 'partitions', title: t('collections.partitions'), cell: ({ partitions }) => count(partitions, i18n.language), isNumber: true },
        { name: 'newest', title: t('collections.newest'), cell: ({ newest }) => <Time at={moment(newest)} />, sortBy: ({ newest }) => newest, isStill: true },
      ]}
    />
  )
}
