import { Anchor, Group, Text } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { ConfirmButton } from '@/components/confirm-button'
import { DataTable } from '@/components/data-table'
import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import { useDeleteConnector, usersOf } from '@/features/connectors/api/connectors'
import { NewConnector } from '@/features/connectors/components/type-picker'
import { useConnectors, useConnectorTypes } from '@/lib/queries/connectors'
import { useServerTexts } from '@/lib/texts'

export function ConnectorsPage() {
  const { t } = useTranslation()
  const text = useServerTexts()
  const saved = useConnectors()
  const types = useConnectorTypes()
  const remove = useDeleteConnector()
  const titleOf = (type: string) => text(types.data?.find((known) => known.type === type)?.title ?? type)
  return (
    <Page purpose={t('connectors.purpose')} action={<NewConnector />}>
      <Loaded query={saved}>
        {(connectors) =>
          connectors.length ? (
            <DataTable
              label={t('connectors.title')}
              isFramed
              rows={connectors}
              keyOf={({ id }) => id}
              actions={({ id, name }) => (
                <ConfirmButton
                  size="compact-xs"
                  title={t('connectors.deleteTitle', { name })}
                  text={t('connectors.deleteText')}
                  hindrance={async () => {
                    const users = await usersOf(id)
                    return users.length ? t('connectors.used', { names: users.join(', ') }) : undefined
                  }}
                  onConfirm={() => remove.mutate(id, { onError: toastFailed })}
                >
                  {t('common.delete')}
                </ConfirmButton>
              )}
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
                  name: 'updated',
                  title: t('common.updated'),
                  cell: ({ updated_at }) => <Time at={updated_at} />,
                  sortBy: ({ updated_at }) => updated_at,
                  isStill: true,
                },
              ]}
            />
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
