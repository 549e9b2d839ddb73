import { Badge, Button, Card, Group, Table, Text, Title } from '@mantine/core'
import { IconPlus } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { ConfirmButton } from '@/components/confirm-button'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import { useApiKeys, useRevokeApiKey, type ApiKey } from '@/features/access/api/access'
import { ApiKeyDialog } from '@/features/access/components/api-key-dialog'

export function ApiKeys() {
  const { t } = useTranslation()
  const query = useApiKeys()
  const [creating, setCreating] = useState(false)
  const create = (
    <Button size="xs" leftSection={<IconPlus size={16} />} onClick={() => setCreating(true)}>
      {t('access.createKey')}
    </Button>
  )
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Title order={3} size="h5">
          {t('access.keys')}
        </Title>
        {create}
      </Group>
      <Loaded query={query}>
        {(keys) =>
          keys.length ? (
            <Table.ScrollContainer minWidth={720}>
              <Table>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>{t('common.name')}</Table.Th>
                    <Table.Th>{t('access.key')}</Table.Th>
                    <Table.Th>{t('access.mayDo')}</Table.Th>
                    <Table.Th>{t('access.made')}</Table.Th>
                    <Table.Th>{t('access.expires')}</Table.Th>
                    <Table.Th />
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {keys.map((key) => (
                    <KeyRow key={key.id} apiKey={key} />
                  ))}
                </Table.Tbody>
              </Table>
            </Table.ScrollContainer>
          ) : (
            <Empty title={t('access.noKeys')} hint={t('access.noKeysHint')} />
          )
        }
      </Loaded>
      {creating && <ApiKeyDialog onClose={() => setCreating(false)} />}
    </Card>
  )
}

function KeyRow({ apiKey }: { apiKey: ApiKey }) {
  const { t } = useTranslation()
  const revoke = useRevokeApiKey()
  return (
    <Table.Tr>
      <Table.Td>{apiKey.name}</Table.Td>
      <Table.Td>{apiKey.prefix}…</Table.Td>
      <Table.Td>{apiKey.scopes.map((scope) => t(`access.scopes.${scope}`)).join(', ')}</Table.Td>
      <Table.Td>
        <Time at={apiKey.created_at} />
        <Text size="xs" c="dimmed">
          {apiKey.created_by}
        </Text>
      </Table.Td>
      <Table.Td>
        <Expiry apiKey={apiKey} />
      </Table.Td>
      <Table.Td>
        {!apiKey.revoked_at && (
          <Group justify="flex-end">
            <ConfirmButton
              size="compact-xs"
              title={t('access.revokeTitle', { name: apiKey.name })}
              text={t('access.revokeText')}
              onConfirm={() => revoke.mutate(apiKey.id, { onError: toastFailed })}
            >
              {t('access.revoke')}
            </ConfirmButton>
          </Group>
        )}
      </Table.Td>
    </Table.Tr>
  )
}

function Expiry({ apiKey }: { apiKey: ApiKey }) {
  const { t } = useTranslation()
  if (apiKey.revoked_at) {
    return (
      <Badge color="gray" variant="light" tt="none">
        {t('access.revoked')}
      </Badge>
    )
  }
  return apiKey.expires_at ? <Time at={apiKey.expires_at} /> : t('access.never')
}
