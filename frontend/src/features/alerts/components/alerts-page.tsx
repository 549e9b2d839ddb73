import { Badge, Button, Card, Group, Stack, Text, Title } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck, IconPlus } from '@tabler/icons-react'
import { lazy, Suspense, useState } from 'react'
import { useTranslation } from 'react-i18next'

import { ConfirmButton } from '@/components/confirm-button'
import { DataTable } from '@/components/data-table'
import { ListExtent } from '@/components/list-extent'
import { LoadMore } from '@/components/load-more'
import { Page } from '@/components/page'
import { SearchInput } from '@/components/search-input'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import { useAlertRules, useAlerts, useDeleteAlertRule, type Alert, type AlertRule } from '@/features/alerts/api/alerts'
import { useMay } from '@/lib/queries/session'
import { useSearch } from '@/lib/use-filter'

const AlertRuleDialog = lazy(async () => ({ default: (await import('@/features/alerts/components/alert-rule-dialog')).AlertRuleDialog }))

export function AlertsPage() {
  const { t } = useTranslation()
  const alertsQuery = useAlerts()
  const search = useSearch()
  const rulesQuery = useAlertRules(search.settled)
  const [edited, setEdited] = useState<AlertRule | 'new' | null>(null)
  const create = useMay('editor') && (
    <Button leftSection={<IconPlus size={16} />} onClick={() => setEdited('new')}>
      {t('alerts.create')}
    </Button>
  )
  return (
    <Page purpose={t('alerts.purpose')} action={create}>
      <Stack gap="lg">
        <Card withBorder>
          <Title order={2} size="h5" mb="sm">
            {t('alerts.history')}
          </Title>
          <Loaded query={alertsQuery}>
            {({ pages }) =>
              pages.some(({ results }) => results.length) ? (
                <AlertTable alerts={pages.flatMap(({ results }) => results)} />
              ) : (
                <Text size="sm" c="dimmed" py="md">
                  {t('alerts.none')}
                </Text>
              )
            }
          </Loaded>
          <LoadMore query={alertsQuery} isByHand />
        </Card>
        <Card withBorder>
          <Title order={2} size="h5" mb="sm">
            {t('alerts.rules')}
          </Title>
          <Group mb="sm">
            <SearchInput label={t('alerts.searchRules')} value={search.typed} onChange={search.set} />
          </Group>
          <ListExtent query={rulesQuery} hint={t('table.searchHint')} />
          <Loaded query={rulesQuery}>
            {({ rows: rules }) =>
              rules.length ? (
                <RuleTable rules={rules} onEdit={setEdited} />
              ) : search.settled ? (
                <Empty title={t('alerts.noRule')} />
              ) : (
                <Empty title={t('alerts.empty')} hint={t('alerts.emptyHint')} action={create} />
              )
            }
          </Loaded>
        </Card>
      </Stack>
      <Suspense>{edited && <AlertRuleDialog rule={edited === 'new' ? undefined : edited} onClose={() => setEdited(null)} />}</Suspense>
    </Page>
  )
}

function AlertTable({ alerts }: { alerts: Alert[] }) {
  const { t } = useTranslation()
  return (
    <DataTable
      label={t('alerts.history')}
      rows={alerts}
      keyOf={({ id }) => String(id)}
      columns={[
        { name: 'rule', title: t('alerts.rule'), cell: ({ rule_name }) => rule_name, isLead: true },
        { name: 'state', title: t('common.status'), cell: ({ ended_at }) => <AlertState isOver={ended_at !== null} /> },
        {
          name: 'message',
          title: t('pipelines.message'),
          cell: ({ message, notification }) => (
            <>
              {message}
              {notification && (
                <Text size="xs" c="red">
                  {t('alerts.notNotified', { why: notification })}
                </Text>
              )}
            </>
          ),
          isWide: true,
        },
        { name: 'began', title: t('alerts.began'), cell: ({ started_at }) => <Time at={started_at} />, isStill: true },
        { name: 'ended', title: t('alerts.ended'), cell: ({ ended_at }) => <Time at={ended_at} />, isStill: true },
      ]}
    />
  )
}

function AlertState({ isOver }: { isOver: boolean }) {
  const { t } = useTranslation()
  const Icon = isOver ? IconCircleCheck : IconAlertTriangle
  return (
    <Badge color={isOver ? 'gray' : 'red'} variant="light" tt="none" miw="max-content" leftSection={<Icon size={12} aria-hidden />}>
      {t(isOver ? 'alerts.over' : 'alerts.firing')}
    </Badge>
  )
}

function RuleTable({ rules, onEdit }: { rules: AlertRule[]; onEdit: (rule: AlertRule) => void }) {
  const { t } = useTranslation()
  const remove = useDeleteAlertRule()
  const mayEdit = useMay('editor')
  return (
    <DataTable
      label={t('alerts.rules')}
      rows={rules}
      keyOf={({ id }) => String(id)}
      actions={mayEdit ? (rule) => (
        <>
          <Button size="compact-xs" variant="default" onClick={() => onEdit(rule)}>
            {t('common.edit')}
          </Button>
          <ConfirmButton
            size="compact-xs"
            title={t('alerts.deleteTitle', { name: rule.name })}
            text={t('alerts.deleteText')}
            onConfirm={() => remove.mutate(rule.id, { onError: toastFailed })}
          >
            {t('common.delete')}
          </ConfirmButton>
        </>
      ) : undefined}
      columns={[
        { name: 'name', title: t('common.name'), cell: ({ name }) => name, sortBy: ({ name }) => name, isLead: true },
        { name: 'kind', title: t('alerts.kind'), cell: ({ kind }) => t(`alerts.kinds.${kind}`), isWide: true },
        { name: 'state', title: t('common.status'), cell: ({ enabled }) => t(enabled ? 'alerts.on' : 'alerts.off') },
      ]}
    />
  )
}
