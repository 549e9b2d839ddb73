import { Button, Collapse, Group, Select, Table, Text, TextInput } from '@mantine/core'
import { useDebouncedCallback, useDisclosure } from '@mantine/hooks'
import { IconDownload, IconSearch } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import { ChangeList } from '@/components/change-list'
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
              <Table.ScrollContainer minWidth={620}>
                <Table>
                  <Table.Thead>
                    <Table.Tr>
                      <Table.Th>{t('pipelines.at')}</Table.Th>
                      <Table.Th>{t('audit.actor')}</Table.Th>
                      <Table.Th>{t('audit.action')}</Table.Th>
                      <Table.Th>{t('audit.object')}</Table.Th>
                    </Table.Tr>
                  </Table.Thead>
                  <Table.Tbody>
                    {rows.map((entry) => (
                      <Entry key={entry.id} entry={entry} />
                    ))}
                  </Table.Tbody>
                </Table>
              </Table.ScrollContainer>
              <LoadMore query={entries} />
            </>
          )
        }}
      </Loaded>
    </Page>
  )
}

function Entry({ entry }: { entry: AuditEntry }) {
  const { t } = useTranslation()
  const [shown, { toggle }] = useDisclosure()
  return (
    <Table.Tr style={{ verticalAlign: 'top' }}>
      <Table.Td>
        <Time at={entry.at} />
      </Table.Td>
      <Table.Td>{entry.actor}</Table.Td>
      <Table.Td>{t(`audit.actions.${entry.action}`, { defaultValue: entry.action })}</Table.Td>
      <Table.Td>
        <Text size="sm">{entry.object_name || '–'}</Text>
        {entry.changes.length > 0 && (
          <>
            <Button variant="subtle" size="compact-xs" px={0} onClick={toggle} aria-expanded={shown}>
              {t('audit.changes', { count: entry.changes.length })}
            </Button>
            <Collapse expanded={shown}>
              <ChangeList changes={entry.changes} />
            </Collapse>
          </>
        )}
      </Table.Td>
    </Table.Tr>
  )
}
