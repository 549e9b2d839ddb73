import { Anchor, Group, Text } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconAlertTriangle } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { ConfirmButton } from '@/components/confirm-button'
import { DataTable } from '@/components/data-table'
import { LastError } from '@/components/last-error'
import { ListExtent } from '@/components/list-extent'
import { Page } from '@/components/page'
import { SearchInput } from '@/components/search-input'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import { useConnectorActivity, useDeleteConnector, usersOf } from '@/features/connectors/api/connectors'
import { NewConnector } from '@/features/connectors/components/type-picker'
import { count } from '@/lib/format'
import { useConnectors, useConnectorTypes, type Connector } from '@/lib/queries/connectors'
import { typing } from '@/lib/queries/listing'
import { useMay } from '@/lib/queries/session'
import { useServerTexts } from '@/lib/texts'
import { useFilter } from '@/lib/use-filter'

export function ConnectorsPage() {
  const { t, i18n } = useTranslation()
  const text = useServerTexts()
  const { filter, set } = useFilter()
  const search = filter.search ?? ''
  const [settled] = useDebouncedValue(search, typing)
  const saved = useConnectors(settled)
  const activity = useConnectorActivity().data
  const errorOf = ({ id }: Connector) => activity?.get(id)?.last_error
  const types = useConnectorTypes()
  const remove = useDeleteConnector()
  const mayEdit = useMay('editor')
  const titleOf = (type: string) => text(types.data?.find((known) => known.type === type)?.title ?? type)
  return (
    <Page purpose={t('connectors.purpose')} action={<NewConnector />}>
      <Group mb="md">
        <SearchInput value={search} onChange={(value) => set('search', value)} />
      </Group>
      <ListExtent query={saved} hint={t('table.searchHint')} />
      <Loaded query={saved}>
        {({ rows: connectors }) =>
          connectors.length ? (
            <DataTable
              label={t('connectors.title')}
              isFramed
              rows={connectors}
              keyOf={({ id }) => id}
              actions={mayEdit ? ({ id, name }) => (
                <ConfirmButton
                  size="compact-xs"
                  title={t('connectors.deleteTitle', { name })}
                  text={t('connectors.deleteText')}
                  hindrance={async () => {
                    const users = await usersOf(id)
                    return users.length ? t('connectors.used', { names: users.map((user) => user.name).join(', ') }) : undefined
                  }}
                  onConfirm={() => remove.mutate(id, { onError: toastFailed })}
                >
                  {t('common.delete')}
                </ConfirmButton>
              ) : undefined}
              columns={[
                {
                  name: 'name',
                  title: t('common.name'),
                  cell: ({ id, name, failure }) => (
                    <>
                      <Anchor component={Link} to={`/connectors/${id}/edit`}>
                        {name}
                      </Anchor>
                      {failure && <Failure text={text(failure)} />}
                    </>
                  ),
                  sortBy: ({ name }) => name,
                  isLead: true,
                },
                { name: 'type', title: t('common.type'), cell: ({ type }) => titleOf(type), sortBy: ({ type }) => titleOf(type) },
                {
                  name: 'pipelines',
                  title: t('pipelines.title'),
                  cell: ({ id }) => activity && count(activity.get(id)?.pipelines ?? 0, i18n.language),
                  sortBy: ({ id }) => activity?.get(id)?.pipelines ?? 0,
                  isNumber: true,
                },
                {
                  name: 'error',
                  title: t('pipelines.lastError'),
                  cell: (connector) => {
                    const error = errorOf(connector)
                    return error && <LastError error={error} />
                  },
                  sortBy: (connector) => errorOf(connector)?.at ?? null,
                  isWide: true,
                },
                {
                  name: 'updated',
                  title: t('common.updated'),
                  cell: ({ updated_at }) => <Time at={updated_at} />,
                  sortBy: ({ updated_at }) => updated_at,
                  isStill: true,
                },
              ]}
            />
          ) : settled ? (
            <Empty title={t('connectors.noMatch')} />
          ) : (
            <Empty title={t('connectors.empty')} hint={t('connectors.emptyHint')} action={<NewConnector />} />
          )
        }
      </Loaded>
    </Page>
  )
}

/** Why a connector cannot be used. */
function Failure({ text }: { text: string }) {
  return (
    <Group gap={4} wrap="nowrap" align="flex-start" c="red">
      <IconAlertTriangle size={16} style={{ flexShrink: 0, marginTop: 2 }} aria-hidden />
      <Text size="sm" c="red" maw={560}>
        {text}
      </Text>
    </Group>
  )
}
