import { Button, Group, Select, Text, TextInput } from '@mantine/core'
import { useDebouncedCallback } from '@mantine/hooks'
import { IconDownload, IconSearch } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { ChangeList } from '@/components/change-list'
import { DataTable } from '@/components/data-table'
import { LoadMore } from '@/components/load-more'
import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { useAudit, type AuditEntry } from '@/features/audit/api/audit'
import { linkTo } from '@/lib/api/client'
import { useFilter } from '@/lib/use-filter'

const kinds = [
  'connector',
  'pipeline',
  'api_key',
  'dead_letters',
  'breaker',
  'alert_rule',
  'job',
  'session',
  'workspace',
  'membership',
  'user',
] as const

export function AuditPage() {
  const { t } = useTranslation()
  const { filter, set } = useFilter()
  const entries = useAudit(filter)
  const search = useDebouncedCallback((value: string) => set('search', value), 300)
  return (
    <Page
      purpose={t('audit.purpose')}
      action={
        <Button
          component="a"
          variant="default"
          leftSection={<IconDownload size={16} />}
          href={linkTo('/api/v1/audit/export/', filter)}
        >
          {t('audit.export')}
        </Button>
      }
    >
      <Group mb="md" align="flex-end">
        <Select
          w={{ base: '100%', xs: 190 }}
          label={t('audit.action')}
          placeholder={t('deliveries.any')}
          clearable
          data={kinds.map((value) => ({ value, label: t(`audit.kinds.${value}`) }))}
          value={filter.action ?? null}
          onChange={(value) => set('action', value)}
        />
        <TextInput
          w={{ base: '100%', xs: 260 }}
          label={t('audit.search')}
          data-search
          leftSection={<IconSearch size={16} />}
          defaultValue={filter.search ?? ''}
          onChange={(event) => search(event.currentTarget.value)}
        />
      </Group>
      <Loaded query={entries}>
        {({ pages }) => {
          const rows = pages.flatMap((page) => page.results)
          if (!rows.length) return <Empty title={t('audit.empty')} />
          return (
            <>
              <EntryTable entries={rows} />
              <LoadMore query={entries} />
            </>
          )
        }}
      </Loaded>
    </Page>
  )
}

function EntryTable({ entries }: { entries: AuditEntry[] }) {
  const { t } = useTranslation()
  const [opened, setOpened] = useState<string | null>(null)
  return (
    <DataTable
      label={t('audit.title')}
      isFramed
      rows={entries}
      keyOf={({ id }) => id}
      detail={({ id, changes }) => opened === id && <ChangeList changes={changes} />}
      columns={[
        {
          name: 'action',
          title: t('audit.action'),
          cell: ({ action }) => t(`audit.actions.${action}`, { defaultValue: action }),
          isLead: true,
        },
        {
          name: 'object',
          title: t('audit.object'),
          cell: ({ id, object_name, changes }) => (
            <>
              <Text size="sm">{object_name || '–'}</Text>
              {changes.length > 0 && (
                <Button
                  variant="subtle"
                  size="compact-xs"
                  px={0}
                  onClick={() => setOpened(opened === id ? null : id)}
                  aria-expanded={opened === id}
                >
                  {t('audit.changes', { count: changes.length })}
                </Button>
              )}
            </>
          ),
        },
        { name: 'actor', title: t('audit.actor'), cell: ({ actor }) => actor },
        { name: 'at', title: t('pipelines.at'), cell: ({ at }) => <Time at={at} />, isStill: true },
      ]}
    />
  )
}
