import { Alert, Badge, Card, Group, SimpleGrid, Stack, Table, Text, Title } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck } from '@tabler/icons-react'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

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
    <Part title={t('kafkaProxies.nodes')} heads={['node', 'address', 'rack', 'state', 'standsFor']}>
      {status.nodes.map((node) => (
        <Table.Tr key={node.id}>
          <Table.Td>{node.id}</Table.Td>
          <Table.Td>{node.address}</Table.Td>
          <Table.Td>{node.rack ?? '–'}</Table.Td>
          <Table.Td>
            <Badge
              color={node.is_up ? 'gray' : 'red'}
              variant="light"
              tt="none"
              leftSection={node.is_up ? <IconCircleCheck size={12} aria-hidden /> : <IconAlertTriangle size={12} aria-hidden />}
            >
              {t(node.is_up ? 'kafkaProxies.up' : 'kafkaProxies.down')}
            </Badge>
          </Table.Td>
          <Table.Td>
            {status.brokers
              .filter((broker) => broker.proxy === node.id)
              .map((broker) => broker.id)
              .join(', ') || '–'}
          </Table.Td>
        </Table.Tr>
      ))}
    </Part>
  )
}

function Brokers({ status }: { status: Status }) {
  const { t } = useTranslation()
  if (!status.brokers.length) return <Text c="dimmed" mb="md">{t('kafkaProxies.noBrokers')}</Text>
  return (
    <Part title={t('kafkaProxies.brokers')} heads={['node', 'address', 'rack', ...rateHeads]}>
      {status.brokers.map((broker) => (
        <Table.Tr key={broker.id}>
          <Table.Td>{broker.id}</Table.Td>
          <Table.Td>{broker.address}</Table.Td>
          <Table.Td>{broker.rack ?? '–'}</Table.Td>
          <RateCells of={broker} />
        </Table.Tr>
      ))}
    </Part>
  )
}

function Clients({ status }: { status: Status }) {
  const { t } = useTranslation()
  const busiest = [...status.clients].sort((a, b) => b.connections - a.connections)
  if (!busiest.length) return null
  return (
    <Part title={t('kafkaProxies.clients')} heads={['clientId', ...rateHeads]}>
      {busiest.slice(0, 50).map((client) => (
        <Table.Tr key={client.name}>
          <Table.Td style={{ overflowWrap: 'anywhere' }}>{client.name || t('kafkaProxies.unnamed')}</Table.Td>
          <RateCells of={client} />
        </Table.Tr>
      ))}
    </Part>
  )
}

function Errors({ status }: { status: Status }) {
  const { t } = useTranslation()
  if (!status.last_errors.length) return null
  return (
    <Part title={t('kafkaProxies.errors')} heads={['at', 'message']}>
      {status.last_errors.slice(0, 20).map((error, index) => (
        <Table.Tr key={`${error.at} ${index}`}>
          <Table.Td>
            <Time at={error.at} />
          </Table.Td>
          <Table.Td style={{ overflowWrap: 'anywhere' }}>{error.message}</Table.Td>
        </Table.Tr>
      ))}
    </Part>
  )
}

const rateHeads = ['connections', 'requests', 'sent', 'received', 'failures'] as const

function RateCells({ of }: { of: Throughput }) {
  const { i18n } = useTranslation()
  const rate = (value: number) => `${bytes(value, i18n.language)}/s`
  return (
    <>
      <Table.Td>{count(of.connections, i18n.language)}</Table.Td>
      <Table.Td>{perSecond(of.requests_per_second, i18n.language)}/s</Table.Td>
      <Table.Td style={{ whiteSpace: 'nowrap' }}>{rate(of.bytes_from_per_second)}</Table.Td>
      <Table.Td style={{ whiteSpace: 'nowrap' }}>{rate(of.bytes_to_per_second)}</Table.Td>
      <Table.Td>{count(of.failures, i18n.language)}</Table.Td>
    </>
  )
}

type Head = 'node' | 'address' | 'rack' | 'state' | 'standsFor' | 'clientId' | 'at' | 'message' | (typeof rateHeads)[number]

function Part({ title, heads, children }: { title: string; heads: readonly Head[]; children: ReactNode }) {
  const { t } = useTranslation()
  return (
    <>
      <Title order={3} size="h5" mt="md" mb={4}>
        {title}
      </Title>
      <Table.ScrollContainer minWidth={600}>
        <Table aria-label={title}>
          <Table.Thead>
            <Table.Tr>
              {heads.map((head) => (
                <Table.Th key={head}>{t(`kafkaProxies.${head}`)}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>{children}</Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </>
  )
}
