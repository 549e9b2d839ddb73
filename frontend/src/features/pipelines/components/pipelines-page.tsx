import { Anchor, Button, Group, Select, Stack, Text } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconPlus } from '@tabler/icons-react'
import { useCallback, useMemo, useState, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { SparkLine } from '@/components/charts/spark-line'
import { DataTable, type Column } from '@/components/data-table'
import { LastError } from '@/components/last-error'
import { ListExtent } from '@/components/list-extent'
import { Page } from '@/components/page'
import { PipelineState } from '@/components/pipeline-state'
import { SavedViews } from '@/components/saved-views'
import { SearchInput } from '@/components/search-input'
import { Empty, Loaded } from '@/components/states'
import { useActivity, type Activity } from '@/features/pipelines/api/pipelines'
import { BulkBar } from '@/features/pipelines/components/bulk-bar'
import { count, perSecond } from '@/lib/format'
import { mostWatched, useLiveCounts } from '@/lib/live'
import { isTrouble, severityOf, states, statusOf, type Status } from '@/lib/pipeline-status'
import { useConditions } from '@/lib/queries/conditions'
import { typing } from '@/lib/queries/listing'
import { usePipelines, type Pipeline } from '@/lib/queries/pipelines'
import { useMay } from '@/lib/queries/session'
import { accepted, deliveredIn, ratesByEvent } from '@/lib/rates'
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
  const [settled] = useDebouncedValue(search, typing)
  const pipelines = usePipelines(settled)
  const create = useMay('editor') && (
    <Button component={Link} to="/pipelines/new" leftSection={<IconPlus size={16} />}>
      {t('pipelines.create')}
    </Button>
  )
  return (
    <Page purpose={t('pipelines.purpose')} action={create}>
      <Group justify="space-between" mb="md">
        <Group gap="sm">
          <SearchInput value={search} onChange={(value) => set('search', value)} />
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
      <ListExtent query={pipelines} hint={t('table.searchHint')} />
      <Loaded query={pipelines}>
        {({ rows }) =>
          rows.length ? (
            <PipelineTable pipelines={rows} state={filter.state} />
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

const idOf = ({ id }: Pipeline) => id
const idsOf = (pipelines: Pipeline[]) => pipelines.map(idOf)

interface TableProps {
  pipelines: Pipeline[]
  /** The one to which the list is narrowed. */
  state: string | undefined
}

function PipelineTable({ pipelines, state }: TableProps) {
  const { t, i18n } = useTranslation()
  const mayAct = useMay('operator')
  const conditions = useConditions()
  const activity = useActivity(useMemo(() => idsOf(pipelines), [pipelines]))
  const [visible, setVisible] = useState<string[]>([])
  const onShow = useCallback((rows: Pipeline[]) => setVisible(idsOf(rows)), [])
  const [chosen, setChosen] = useState<Set<string>>(new Set())
  const of = (pipeline: Pipeline) => statusOf(pipeline, conditions.data)
  const shown = pipelines.filter((pipeline) => !state || of(pipeline).state === state)
  // The live numbers of a longer list are only known where somebody looks, so that it cannot be sorted by them.
  const areAllWatched = shown.length <= mostWatched
  const { counts: live, now } = useLiveCounts(areAllWatched ? idsOf(shown) : visible)
  const rateColumn = (name: string, title: string, of: (counts: Record<string, number>) => number): Column<Pipeline> => {
    const valueOf = ({ id }: Pipeline) => of(ratesByEvent(live[id] ?? {}, now, window))
    const cell = (pipeline: Pipeline) =>
      live[pipeline.id] ? t('pipelines.ratePerSecond', { rate: perSecond(valueOf(pipeline), i18n.language) }) : '–'
    return { name, title, cell, sortBy: areAllWatched ? valueOf : undefined, isNumber: true, isStill: true }
  }
  const [troubled, others] = [true, false].map((is) => shown.filter((pipeline) => isTrouble(of(pipeline)) === is))
  const lettersOf = ({ id }: Pipeline) => conditions.data?.get(id)?.dead_letters ?? 0
  const backlogOf = ({ id }: Pipeline) => activity.get(id)?.backlog ?? null
  const errorOf = ({ id }: Pipeline) => activity.get(id)?.last_error
  if (!shown.length) return <Empty title={t('pipelines.noMatch')} />
  return (
    <>
      <DataTable
        label={t('pipelines.title')}
        isFramed
        rows={[...(troubled ?? []), ...(others ?? [])]}
        keyOf={idOf}
        onShow={onShow}
        selection={mayAct ? { chosen, onChange: setChosen, label: ({ name }) => t('pipelines.choose', { name }) } : undefined}
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
          { name: 'day', title: t('pipelines.lastDay'), cell: ({ id }) => <Day activity={activity.get(id)} />, sortBy: ({ id }) => total(activity.get(id)?.delivered) },
          rateColumn('in', t('pipelines.inRate'), accepted),
          rateColumn('out', t('pipelines.outRate'), deliveredIn),
          {
            name: 'backlog',
            title: t('pipelines.waiting'),
            cell: (pipeline) => {
              const backlog = backlogOf(pipeline)
              return backlog === null ? '–' : <span title={t('pipelines.backlogHint')}>{count(backlog, i18n.language)}</span>
            },
            sortBy: backlogOf,
            isNumber: true,
          },
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
            cell: (pipeline) => {
              const error = errorOf(pipeline)
              return error && <LastError error={error} />
            },
            sortBy: (pipeline) => errorOf(pipeline)?.at ?? null,
            isWide: true,
          },
        ]}
      />
      {mayAct && <BulkBar pipelines={shown} chosen={chosen} onChange={setChosen} />}
    </>
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
