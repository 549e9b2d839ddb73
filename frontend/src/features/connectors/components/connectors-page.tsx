import { Anchor, Button, Group, Menu, Table, Text } from '@mantine/core'
import { IconAlertTriangle, IconPlus } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { ConfirmButton } from '@/components/confirm-button'
import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import { useDeleteConnector } from '@/features/connectors/api/connectors'
import { useConnectors, useConnectorTypes, type ConnectorType } from '@/lib/queries/connectors'
import { useServerTexts } from '@/lib/texts'

export function ConnectorsPage() {
  const { t } = useTranslation()
  const text = useServerTexts()
  const saved = useConnectors()
  const types = useConnectorTypes()
  const remove = useDeleteConnector()
  return (
    <Page purpose={t('connectors.purpose')} action={<CreateMenu />}>
      <Loaded query={saved}>
        {(connectors) =>
          connectors.length ? (
            <Table.ScrollContainer minWidth={560}>
              <Table highlightOnHover>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>{t('common.name')}</Table.Th>
                    <Table.Th>{t('common.type')}</Table.Th>
                    <Table.Th>{t('common.updated')}</Table.Th>
                    <Table.Th />
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {connectors.map((connector) => (
                    <Table.Tr key={connector.id}>
                      <Table.Td>
                        <Anchor component={Link} to={`/connectors/${connector.id}/edit`}>
                          {connector.name}
                        </Anchor>
                        {connector.failure && <Failure text={text(connector.failure)} />}
                      </Table.Td>
                      <Table.Td>{text(types.data?.find(({ type }) => type === connector.type)?.title ?? connector.type)}</Table.Td>
                      <Table.Td>
                        <Time at={connector.updated_at} />
                      </Table.Td>
                      <Table.Td>
                        <Group justify="flex-end">
                          <ConfirmButton
                            size="compact-xs"
                            title={t('connectors.deleteTitle', { name: connector.name })}
                            text={t('connectors.deleteText')}
                            onConfirm={() => remove.mutate(connector.id, { onError: toastFailed })}
                          >
                            {t('common.delete')}
                          </ConfirmButton>
                        </Group>
                      </Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </Table.ScrollContainer>
          ) : (
            <Empty title={t('connectors.empty')} hint={t('connectors.emptyHint')} action={<CreateMenu />} />
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

function CreateMenu() {
  const { t } = useTranslation()
  const types = useConnectorTypes()
  return (
    <Menu>
      <Menu.Target>
        <Button leftSection={<IconPlus size={16} />}>{t('connectors.create')}</Button>
      </Menu.Target>
      <Menu.Dropdown>
        {types.data?.map((type) => (
          <TypeItem key={type.type} type={type} />
        ))}
      </Menu.Dropdown>
    </Menu>
  )
}

/** A type to choose; one that this installation lacks something for says what. */
function TypeItem({ type: { type, title, unavailable } }: { type: ConnectorType }) {
  const text = useServerTexts()
  if (unavailable) {
    return (
      <Menu.Item disabled maw={360}>
        {text(title)}
        <Text size="xs">{text(unavailable)}</Text>
      </Menu.Item>
    )
  }
  return (
    <Menu.Item component={Link} to={`/connectors/new/${type}`}>
      {text(title)}
    </Menu.Item>
  )
}
