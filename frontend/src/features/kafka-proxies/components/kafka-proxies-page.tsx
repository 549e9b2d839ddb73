import { Alert, Badge, Card, Group, SimpleGrid, Stack, Text, Title } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import { DataTable, type Column } from '@/components/data-table'
import { Figure } from '@/components/figure'
import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { useKafkaProxies } from '@/features/kafka-proxies/api/kafka-proxies'
import type { components } from '@/lib/api/schema'
import { bytes, count, perSecond } from '@/lib/format'

type Proxy = components['schemas']['KafkaProxy']
type Status = components['schemas']['ProxyStatus']
type Throughput = components['schemas']['ProxyClient'] | components['schemas']['ProxyBroker']

export function KafkaProxiesPage() {
  const { t } = useTranslation()
  const query = useKafkaProxies()
  return (
    <Page purpose={t('kafkaProxies.purpose')}>
      <Loaded query={query}>
        {(proxies) =>
          proxies.length ? (
            <Stack gap="xl">
              {proxies.map((proxy) => (
                <ProxyCard key={proxy.url} proxy={proxy} />
              ))}
            </Stack>
          ) : (
            <Empty title={t('kafkaProxies.empty')} hint={t('kafkaProxies.emptyHint')} />
          )
        }
      </Loaded>
    </Page>
  )
}

function ProxyCard({ proxy }: { proxy: Proxy }) {
  const { t } = useTranslation()
  if (!proxy.status) {
    return (
      <Alert color="red" icon={<IconAlertTriangle />} title={proxy.url}>
        {proxy.error}
      </Alert>
    )
  }
  const status = proxy.status
  const own = status.nodes.find((node) => node.id === status.local)
  return (
    <Card withBorder component="section" aria-label={own?.address}>
      <Group gap="sm" mb="md">
        <Title order={2} size="h4">
          {own?.address}
        </Title>
        {own?.rack && <Text c="dimmed">{own.rack}</Text>}
        {status.is_draining && <Badge color="yellow">{t('kafkaProxies.draining')}</Badge>}
      </Group>
      <Rates status={status} />
      <Nodes status={status} />
      <Brokers status={status} />
      <Clients status={status} />
      <Errors status={status} />
    </Card>
  )
}

function Rates({ status }: { status: Status }) {
  const { t, i18n } = useTranslation()
  const sum = (of: (client: Throughput) => number) => status.clients.reduce((total, client) => total + of(client), 0)
  const rate = (value: number) => `${bytes(value, i18n.language)}/s`
  return (
    <SimpleGrid cols={{ base: 2, md: 4 }} mb="md">
      <Figure label={t('kafkaProxies.connections')} value={count(status.connections, i18n.language)} />
      <Figure label={t('kafkaProxies.requests')} value={`${perSecond(sum((c) => c.requests_per_second), i18n.language)}/s`} />
      <Figure label={t('kafkaProxies.fromClients')} value={rate(sum((c) => c.bytes_from_per_second))} />
      <Figure label={t('kafkaProxies.toClients')} value={rate(sum((c) => c.bytes_to_per_second))} />
    </SimpleGrid>
  )
}

function Nodes({ status }: { status: Status }) {
  const { t } = useTranslation()
  return (
    <Part
      title={t('kafkaProxies.nodes')}
      rows={status.nodes}
      keyOf={({ id }) => String(id)}
      columns={[
        { name: 'address', title: t('kafkaProxies.address'), cell: ({ address }) => address, isLead: true },
        { name: 'node', title: t('kafkaProxies.node'), cell: ({ id }) => id },
        { name: 'rack', title: t('kafkaProxies.rack'), cell: ({ rack }) => rack ?? '–' },
        { name: 'state', title: t('kafkaProxies.state'), cell: (node) => <NodeState isUp={node.is_up} /> },
        {
          name: 'standsFor',
          title: t('kafkaProxies.standsFor'),
          cell: ({ id }) =>
            status.brokers
              .filter((broker) => broker.proxy === id)
              .map((broker) => broker.id)
              .join(', ') || '–',
        },
      ]}
    />
  )
}

function NodeState({ isUp }: { isUp: boolean }) {
  const { t } = useTranslation()
  const Icon = isUp ? IconCircleCheck : IconAlertTriangle
  return (
    <Badge color={isUp ? 'gray' : 'red'} variant="light" tt="none" leftSection={<Icon size={12} aria-hidden />}>
      {t(isUp ? 'kafkaProxies.up' : 'kafkaProxies.down')}
    </Badge>
  )
}

function Brokers({ status }: { status: Status }) {
  const { t } = useTranslation()
  const rates = useRateColumns()
  if (!status.brokers.length) return <Text c="dimmed" mb="md">{t('kafkaProxies.noBrokers')}</Text>
  return (
    <Part
      title={t('kafkaProxies.brokers')}
      rows={status.brokers}
      keyOf={({ id }) => String(id)}
      columns={[
        { name: 'address', title: t('kafkaProxies.address'), cell: ({ address }) => address, isLead: true },
        { name: 'node', title: t('kafkaProxies.node'), cell: ({ id }) => id },
        { name: 'rack', title: t('kafkaProxies.rack'), cell: ({ rack }) => rack ?? '–' },
        ...rates,
      ]}
    />
  )
}

function Clients({ status }: { status: Status }) {
  const { t } = useTranslation()
  const rates = useRateColumns()
  const busiest = [...status.clients].sort((a, b) => b.connections - a.connections)
  if (!busiest.length) return null
  return (
    <Part
      title={t('kafkaProxies.clients')}
      rows={busiest.slice(0, 50)}
      keyOf={({ name }) => name}
      columns={[
        { name: 'clientId', title: t('kafkaProxies.clientId'), cell: ({ name }) => name || t('kafkaProxies.unnamed'), isLead: true },
        ...rates,
      ]}
    />
  )
}

function Errors({ status }: { status: Status }) {
  const { t } = useTranslation()
  if (!status.last_errors.length) return null
  const errors = status.last_errors.slice(0, 20).map((error, index) => ({ ...error, index }))
  return (
    <Part
      title={t('kafkaProxies.errors')}
      rows={errors}
      keyOf={({ at, index }) => `${at} ${index}`}
      columns={[
        { name: 'at', title: t('kafkaProxies.at'), cell: ({ at }) => <Time at={at} />, isStill: true },
        { name: 'message', title: t('kafkaProxies.message'), cell: ({ message }) => message, isWide: true },
      ]}
    />
  )
}

/** What clients and brokers have in common. */
function useRateColumns(): Column<Throughput>[] {
  const { t, i18n } = useTranslation()
  const number = (name: 'connections' | 'requests' | 'sent' | 'received' | 'failures', cell: (of: Throughput) => string) => ({
    name,
    title: t(`kafkaProxies.${name}`),
    cell,
    isNumber: true,
    isStill: true,
  })
  const rate = (value: number) => `${bytes(value, i18n.language)}/s`
  return [
    number('connections', (of) => count(of.connections, i18n.language)),
    number('requests', (of) => `${perSecond(of.requests_per_second, i18n.language)}/s`),
    number('sent', (of) => rate(of.bytes_from_per_second)),
    number('received', (of) => rate(of.bytes_to_per_second)),
    number('failures', (of) => count(of.failures, i18n.language)),
  ]
}

interface PartProps<Row> {
  title: string
  rows: Row[]
  columns: Column<Row>[]
  keyOf: (row: Row) => string
}

function Part<Row>({ title, ...table }: PartProps<Row>) {
  return (
    <>
      <Title order={3} size="h5" mt="md" mb={4}>
        {title}
      </Title>
      <DataTable label={title} {...table} />
    </>
  )
}
