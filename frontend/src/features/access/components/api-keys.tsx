import { Badge, Button, Card, Group, Text, Title } from '@mantine/core'
import { IconPlus } from '@tabler/icons-react'
import { lazy, Suspense, useState } from 'react'
import { useTranslation } from 'react-i18next'

import { ConfirmButton } from '@/components/confirm-button'
import { DataTable } from '@/components/data-table'
import { ListExtent } from '@/components/list-extent'
import { SearchInput } from '@/components/search-input'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import { useApiKeys, useRevokeApiKey, type ApiKey } from '@/features/access/api/access'
import { useSearch } from '@/lib/use-filter'

const ApiKeyDialog = lazy(async () => ({ default: (await import('@/features/access/components/api-key-dialog')).ApiKeyDialog }))

export function ApiKeys() {
  const { t } = useTranslation()
  const search = useSearch('key')
  const query = useApiKeys(search.settled)
  const [creating, setCreating] = useState(false)
  const create = (
    <Button size="xs" leftSection={<IconPlus size={16} />} onClick={() => setCreating(true)}>
      {t('access.createKey')}
    </Button>
  )
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h5">
          {t('access.keys')}
        </Title>
        {create}
      </Group>
      <Group mb="sm">
        <SearchInput label={t('access.searchKeys')} value={search.typed} onChange={search.set} />
      </Group>
      <ListExtent query={query} hint={t('table.searchHint')} />
      <Loaded query={query}>
        {({ rows: keys }) =>
          keys.length ? (
            <KeyTable keys={keys} />
          ) : search.settled ? (
            <Empty title={t('access.noKey')} />
          ) : (
            <Empty title={t('access.noKeys')} hint={t('access.noKeysHint')} />
          )
        }
      </Loaded>
      <Suspense>{creating && <ApiKeyDialog onClose={() => setCreating(false)} />}</Suspense>
    </Card>
  )
}

function KeyTable({ keys }: { keys: ApiKey[] }) {
  const { t } = useTranslation()
  const revoke = useRevokeApiKey()
  return (
    <DataTable
      label={t('access.keys')}
      rows={keys}
      keyOf={({ id }) => id}
      actions={(key) =>
        !key.revoked_at && (
          <ConfirmButton
            size="compact-xs"
            title={t('access.revokeTitle', { name: key.name })}
            text={t('access.revokeText')}
            onConfirm={() => revoke.mutate(key.id, { onError: toastFailed })}
          >
            {t('access.revoke')}
          </ConfirmButton>
        )
      }
      columns={[
        { name: 'name', title: t('common.name'), cell: ({ name }) => name, sortBy: ({ name }) => name, isLead: true },
        { name: 'prefix', title: t('access.key'), cell: ({ prefix }) => `${prefix}…` },
        {
          name: 'scopes',
          title: t('access.mayDo'),
          cell: ({ scopes }) => scopes.map((scope) => t(`access.scopes.${scope}`)).join(', '),
          isWide: true,
        },
        {
          name: 'made',
          title: t('access.made'),
          cell: ({ created_at, created_by }) => (
            <div>
              <Time at={created_at} />
              <Text size="xs" c="dimmed">
                {created_by}
              </Text>
            </div>
          ),
          isStill: true,
        },
        { name: 'expires', title: t('access.expires'), cell: (key) => <Expiry apiKey={key} />, isStill: true },
      ]}
    />
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
