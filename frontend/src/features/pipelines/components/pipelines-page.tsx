import { Anchor, Button, Group, Table, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconPlus, IconSearch } from '@tabler/icons-react'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, useSearchParams } from 'react-router'

import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { PipelineStatus } from '@/features/pipelines/components/pipeline-status'
import { accepted, deadIn, deliveredIn, ratesByEvent } from '@/features/pipelines/rates'
import { perSecond } from '@/lib/format'
import { useLiveCounts, type Seconds } from '@/lib/live'
import { usePipelines, type Pipeline } from '@/lib/queries/pipelines'

/** The socket sends five seconds; the two newest are still filling. */
const window = 3

interface Props {
  /** What stands beside the search. */
  tools?: ReactNode
}

export function PipelinesPage({ tools }: Props) {
  const { t } = useTranslation()
  const [parameters, setParameters] = useSearchParams()
  const search = parameters.get('search') ?? ''
  const [settled] = useDebouncedValue(search, 250)
  const pipelines = usePipelines(settled)
  const { counts, now } = useLiveCounts(pipelines.data?.map((pipeline) => pipeline.id) ?? [])
  const create = (
    <Button component={Link} to="/pipelines/new" leftSection={<IconPlus size={16} />}>
      {t('pipelines.create')}
    </Button>
  )
  return (
    <Page purpose={t('pipelines.purpose')} action={create}>
      <Group justify="space-between" mb="md">
        <TextInput
          aria-label={t('common.search')}
          placeholder={t('common.search')}
          leftSection={<IconSearch size={16} />}
          value={search}
          onChange={(event) =>
            setParameters(event.currentTarget.value ? { search: event.currentTarget.value } : {}, { replace: true })
          }
        />
        {tools}
      </Group>
      <Loaded query={pipelines}>
        {(matching) =>
          matching.length ? (
            <PipelineTable pipelines={matching} live={counts} now={now} />
          ) : settled ? (
            <Empty title={t('pipelines.noMatch')} />
          ) : (
            <Empty title={t('pipelines.empty')} hint={t('pipelines.emptyHint')} action={create} />
          )
        }
      </Loaded>
    </Page>
  )
}

interface TableProps {
  pipelines: Pipeline[]
  live: Record<string, Seconds>
  now: number
}

function PipelineTable({ pipelines, live, now }: TableProps) {
  const { t, i18n } = useTranslation()
  const rate = (value: number) => t('pipelines.ratePerSecond', { rate: perSecond(value, i18n.language) })
  return (
    <Table.ScrollContainer minWidth={720}>
      <Table highlightOnHover>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('common.name')}</Table.Th>
            <Table.Th>{t('common.status')}</Table.Th>
            <Table.Th ta="right">{t('pipelines.inRate')}</Table.Th>
            <Table.Th ta="right">{t('pipelines.outRate')}</Table.Th>
            <Table.Th ta="right">{t('pipelines.deadRate')}</Table.Th>
            <Table.Th>{t('common.updated')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {pipelines.map((pipeline) => {
            const rates = ratesByEvent(live[pipeline.id] ?? {}, now, window)
            return (
              <Table.Tr key={pipeline.id}>
                <Table.Td>
                  <Anchor component={Link} to={`/pipelines/${pipeline.id}`}>
                    {pipeline.name}
                  </Anchor>
                </Table.Td>
                <Table.Td>
                  <PipelineStatus pipeline={pipeline} />
                </Table.Td>
                <Table.Td ta="right">{rate(accepted(rates))}</Table.Td>
                <Table.Td ta="right">{rate(deliveredIn(rates))}</Table.Td>
                <Table.Td ta="right">{rate(deadIn(rates))}</Table.Td>
                <Table.Td>
                  <Time at={pipeline.updated_at} />
                </Table.Td>
              </Table.Tr>
            )
          })}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  )
}
