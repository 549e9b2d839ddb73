import { Badge, Button, Card, Group, Stack, Table, Text, Title } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck, IconPlus } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { ConfirmButton } from '@/components/confirm-button'
import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import { useAlertRules, useAlerts, useDeleteAlertRule, type Alert, type AlertRule } from '@/features/alerts/api/alerts'
import { AlertRuleDialog } from '@/features/alerts/components/alert-rule-dialog'

export function AlertsPage() {
  const { t } = useTranslation()
  const alertsQuery = useAlerts()
  const rulesQuery = useAlertRules()
  const [edited, setEdited] = useState<AlertRule | 'new' | null>(null)
  const create = (
    <Button leftSection={<IconPlus size={16} />} onClick={() => setEdited('new')}>
      {t('alerts.create')}
    </Button>
  )
  return (
    <Page purpose={t('alerts.purpose')} action={create}>
      <Stack gap="lg">
        <Card withBorder>
          <Title order={3} size="h5" mb="sm">
            {t('alerts.history')}
          </Title>
          <Loaded query={alertsQuery}>
            {(alerts) =>
              alerts.length ? (
                <AlertTable alerts={alerts} />
              ) : (
                <Text size="sm" c="dimmed" py="md">
                  {t('alerts.none')}
                </Text>
              )
            }
          </Loaded>
        </Card>
        <Card withBorder>
          <Title order={3} size="h5" mb="sm">
            {t('alerts.rules')}
          </Title>
          <Loaded query={rulesQuery}>
            {(rules) =>
              rules.length ? (
                <RuleTable rules={rules} onEdit={setEdited} />
              ) : (
                <Empty title={t('alerts.empty')} hint={t('alerts.emptyHint')} action={create} />
              )
            }
          </Loaded>
        </Card>
      </Stack>
      {edited && <AlertRuleDialog rule={edited === 'new' ? undefined : edited} onClose={() => setEdited(null)} />}
    </Page>
  )
}

function AlertTable({ alerts }: { alerts: Alert[] }) {
  const { t } = useTranslation()
  return (
    <Table.ScrollContainer minWidth={640}>
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('common.status')}</Table.Th>
            <Table.Th>{t('alerts.rule')}</Table.Th>
            <Table.Th>{t('pipelines.message')}</Table.Th>
            <Table.Th>{t('alerts.began')}</Table.Th>
            <Table.Th>{t('alerts.ended')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {alerts.map((alert) => (
            <Table.Tr key={alert.id}>
              <Table.Td>
                {alert.ended_at ? (
                  <Badge color="gray" variant="light" tt="none" miw="max-content" leftSection={<IconCircleCheck size={12} aria-hidden />}>
                    {t('alerts.over')}
                  </Badge>
                ) : (
                  <Badge color="red" variant="light" tt="none" miw="max-content" leftSection={<IconAlertTriangle size={12} aria-hidden />}>
                    {t('alerts.firing')}
                  </Badge>
                )}
              </Table.Td>
              <Table.Td>{alert.rule_name}</Table.Td>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>
                {alert.message}
                {alert.notification && (
                  <Text size="xs" c="red">
                    {t('alerts.notNotified', { why: alert.notification })}
                  </Text>
                )}
              </Table.Td>
              <Table.Td>
                <Time at={alert.started_at} />
              </Table.Td>
              <Table.Td>
                <Time at={alert.ended_at} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  )
}

function RuleTable({ rules, onEdit }: { rules: AlertRule[]; onEdit: (rule: AlertRule) => void }) {
  const { t } = useTranslation()
  const remove = useDeleteAlertRule()
  return (
    <Table.ScrollContainer minWidth={560}>
      <Table>
        <Table.Tbody>
          {rules.map((rule) => (
            <Table.Tr key={rule.id}>
              <Table.Td>{rule.name}</Table.Td>
              <Table.Td>{t(`alerts.kinds.${rule.kind}`)}</Table.Td>
              <Table.Td>{rule.enabled ? t('alerts.on') : t('alerts.off')}</Table.Td>
              <Table.Td>
                <Group gap="xs" justify="flex-end">
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
                </Group>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  )
}
