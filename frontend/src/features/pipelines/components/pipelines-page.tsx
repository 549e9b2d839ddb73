import { Anchor, Button, Group, Select, Stack, Text, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconPlus, IconSearch } from '@tabler/icons-react'
import { useMemo, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { SparkLine } from '@/components/charts/spark-line'
import { DataTable, type Column } from '@/components/data-table'
import { Page } from '@/components/page'
import { PipelineState } from '@/components/pipeline-state'
import { SavedViews } from '@/components/saved-views'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { useActivity, type Activity } from '@/features/pipelines/api/pipelines'
import { count, perSecond } from '@/lib/format'
import { useLiveCounts } from '@/lib/live'
import { isTrouble, severityOf, states, statusOf, type Status } from '@/lib/pipeline-status'
import { useConditions } from '@/lib/queries/conditions'
import { usePipelines, type Pipeline } from '@/lib/queries/pipelines'
import { accepted, deliveredIn, ratesByEvent } from '@/lib/rates'
import type { Seconds } from '@/lib/seconds'
import { useServerTexts } from '@/lib/texts'
import { useFilter } from '@/lib/use-filter'

/** The socket sends five seconds; the two newest are still filling. */
const window = 3

interface Props {
  /** What stands beside the search. */
  tools?: ReactNode
}

export function PipelinesPage({ tools }: Props) {
  const { t } = useTranslation()
  const { filter, set } = useFilter()
  const search = filter.search ?? ''
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
        <Group gap="sm">
          <TextInput
            aria-label={t('common.search')}
            placeholder={t('common.search')}
            data-search
            leftSection={<IconSearch size={16} />}
            value={search}
            onChange={(event) => set('search', event.currentTarget.value)}
          />
          <Select
            aria-label={t('common.status')}
            placeholder={t('common.status')}
            clearable
            data={states.map((value) => ({ value, label: t(`pipelines.states.${value}`) }))}
            value={filter.state ?? null}
            onChange={(value) => set('state', value)}
          />
          <SavedViews />
        </Group>
        {tools}
      </Group>
      <Loaded query={pipelines}>
        {(matching) =>
          matching.length ? (
            <PipelineTable pipelines={matching} state={filter.state} live={counts} now={now} />
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
  /** The one to which the list is narrowed. */
  state: string | undefined
  live: Record<string, Seconds>
  now: number
}

function PipelineTable({ pipelines, state, live, now }: TableProps) {
  const { t, i18n } = useTranslation()
  const conditions = useConditions()
  const activity = useActivity(useMemo(() => pipelines.map(({ id }) => id), [pipelines])).data
  const rateColumn = (name: string, title: string, of: (counts: Record<string, number>) => number): Column<Pipeline> => {
    const valueOf = ({ id }: Pipeline) => of(ratesByEvent(live[id] ?? {}, now, window))
    const cell = (pipeline: Pipeline) =>
      live[pipeline.id] ? t('pipelines.ratePerSecond', { rate: perSecond(valueOf(pipeline), i18n.language) }) : '–'
    return { name, title, cell, sortBy: valueOf, isNumber: true, isStill: true }
  }
  const of = (pipeline: Pipeline) => statusOf(pipeline, conditions.data)
  const shown = pipelines.filter((pipeline) => !state || of(pipeline).state === state)
  const [troubled, others] = [true, false].map((is) => shown.filter((pipeline) => isTrouble(of(pipeline)) === is))
  const lettersOf = ({ id }: Pipeline) => conditions.data?.get(id)?.dead_letters ?? 0
  if (!shown.length) return <Empty title={t('pipelines.noMatch')} />
  return (
    <DataTable
      label={t('pipelines.title')}
      isFramed
      rows={[...(troubled ?? []), ...(others ?? [])]}
      keyOf={({ id }) => id}
      columns={[
        {
          name: 'name',
          title: t('common.name'),
          cell: ({ id, name }) => (
            <Anchor component={Link} to={`/pipelines/${id}`}>
              {name}
            </Anchor>
          ),
          sortBy: ({ name }) => name,
          isLead: true,
        },
        { name: 'status', title: t('common.status'), cell: (pipeline) => <StatusCell status={of(pipeline)} />, sortBy: (pipeline) => severityOf(of(pipeline).state) },
        { name: 'day', title: t('pipelines.lastDay'), cell: ({ id }) => <Day activity={activity?.get(id)} />, sortBy: ({ id }) => total(activity?.get(id)?.delivered) },
        rateColumn('in', t('pipelines.inRate'), accepted),
        rateColumn('out', t('pipelines.outRate'), deliveredIn),
        {
          name: 'letters',
          title: t('deadLetters.title'),
          cell: (pipeline) =>
            lettersOf(pipeline) ? (
              <Anchor component={Link} to={`/dead-letters?pipeline=${pipeline.id}`}>
                {count(lettersOf(pipeline), i18n.language)}
              </Anchor>
            ) : (
              '0'
            ),
          sortBy: lettersOf,
          isNumber: true,
        },
        {
          name: 'error',
          title: t('pipelines.lastError'),
          cell: ({ id }) => <LastError activity={activity?.get(id)} />,
          sortBy: ({ id }) => activity?.get(id)?.last_error?.at ?? '',
          isWide: true,
        },
      ]}
    />
  )
}

/** The reason is shown where somebody has to know it. */
function StatusCell({ status }: { status: Status }) {
  const text = useServerTexts()
  return (
    <Stack gap={2} align="flex-start">
      <PipelineState state={status.state} />
      {isTrouble(status) && (
        <Text size="xs" c="dimmed" lineClamp={2} maw={320} title={text(status.error)}>
          {text(status.reason)}
        </Text>
      )}
    </Stack>
  )
}

const total = (counts: number[] = []) => counts.reduce((sum, n) => sum + n, 0)

/** What was delivered and what failed in 24 hours; nothing where nothing happened. */
function Day({ activity }: { activity: Activity | undefined }) {
  const { t, i18n } = useTranslation()
  const [delivered, failed] = [total(activity?.delivered), total(activity?.failed)]
  if (!activity || !(delivered + failed)) return '–'
  const label = t('pipelines.lastDayLabel', { delivered: count(delivered, i18n.language), failed: count(failed, i18n.language) })
  return <SparkLine label={label} values={activity.delivered} failed={activity.failed} />
}

function LastError({ activity }: { activity: Activity | undefined }) {
  if (!activity?.last_error) return '–'
  const { at, message } = activity.last_error
  return (
    <>
      <Text size="sm" lineClamp={1} title={message}>
        {message}
      </Text>
      <Text size="xs" c="dimmed">
        <Time at={at} />
      </Text>
    </>
  )
}
