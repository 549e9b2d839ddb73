import { Box, Button, Group, UnstyledButton } from '@mantine/core'
import { lazy, Suspense, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useSearchParams } from 'react-router'

import { DataTable } from '@/components/data-table'
import { LoadMore } from '@/components/load-more'
import { NameAndPart } from '@/components/name-and-part'
import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { useDeadLetters, useDeadLetterSummary, type DeadLetter, type DeadLetterGroup } from '@/features/deliveries/api/deliveries'
import type { BulkAction } from '@/features/deliveries/components/bulk-dialog'
import { DeadLetterDrawer } from '@/features/deliveries/components/dead-letter-drawer'
import { FilterBar } from '@/components/filter-bar'
import { StateBadge } from '@/features/deliveries/components/state-badge'
import { count } from '@/lib/format'
import { reasonLabel } from '@/lib/reasons'
import { usePipelineName } from '@/lib/queries/pipelines'
import { useMay } from '@/lib/queries/session'
import { useFilter, type Filter } from '@/lib/use-filter'

const BulkDialog = lazy(async () => ({ default: (await import('@/features/deliveries/components/bulk-dialog')).BulkDialog }))

const states = ['waiting', 'redelivering', 'delivered', 'discarded', 'expired'] as const

export function DeadLettersPage() {
  const { t } = useTranslation()
  const { filter, set } = useFilter({ state: 'waiting' })
  const letters = useDeadLetters(filter)
  const summary = useDeadLetterSummary(filter)
  const [shown, setShown] = useState<string | null>(null)
  const [chosen, setChosen] = useState<Set<string>>(new Set())
  const [action, setAction] = useState<BulkAction | null>(null)
  const mayAct = useMay('operator')
  const selection: Filter = chosen.size ? { ids: [...chosen].join(',') } : filter
  // Only what waits can be redriven or discarded.
  const waiting = filter.state === 'waiting' ? summary.data : []
  const total = chosen.size || (waiting?.reduce((sum, group) => sum + group.count, 0) ?? 0)
  const done = () => {
    setAction(null)
    setChosen(new Set())
  }
  return (
    <Page
      purpose={t('deadLetters.purpose')}
      action={mayAct && (
        <Group gap="xs">
          <Button variant="default" disabled={!total} onClick={() => setAction('discard')}>
            {total ? t('deadLetters.discard', { count: total }) : t('deadLetters.discardOne')}
          </Button>
          <Button disabled={!total} onClick={() => setAction('redrive')}>
            {total ? t('deadLetters.redrive', { count: total }) : t('deadLetters.redriveOne')}
          </Button>
        </Group>
      )}
    >
      <FilterBar
        filter={filter}
        set={set}
        choices={[
          {
            name: 'state',
            label: t('common.status'),
            data: states.map((value) => ({ value, label: t(`deadLetters.state.${value}`) })),
          },
          {
            name: 'reason',
            label: t('pipelines.reason'),
            data: [...new Set(summary.data?.map((group) => group.reason))].map((value) => ({
              value,
              label: reasonLabel(t, value),
            })),
          },
        ]}
        text={{ name: 'search', label: t('deadLetters.search') }}
      />
      <Loaded query={summary}>{(groups) => (groups.length ? <Summary groups={groups} /> : null)}</Loaded>
      <Loaded query={letters}>
        {({ pages }) => {
          const rows = pages.flatMap((page) => page.results)
          return rows.length ? (
            <>
              <LetterTable rows={rows} chosen={chosen} setChosen={setChosen} onShow={setShown} />
              <LoadMore query={letters} />
            </>
          ) : (
            <Empty title={t('deadLetters.empty')} hint={t('deadLetters.emptyHint')} />
          )
        }}
      </Loaded>
      <DeadLetterDrawer id={shown} onClose={() => setShown(null)} />
      <Suspense>{action && <BulkDialog action={action} filter={selection} onClose={() => setAction(null)} onDone={done} />}</Suspense>
    </Page>
  )
}

/** So many groups stand above the list at first, those with the most dead letters. */
const groupsShown = 10

function Summary({ groups }: { groups: DeadLetterGroup[] }) {
  const { t, i18n } = useTranslation()
  const nameOf = usePipelineName()
  const [areAllWanted, setAllWanted] = useState(false)
  // In an order of the reader's the first ones would be others.
  const areAllShown = useSearchParams()[0].has('sort') || areAllWanted || groups.length <= groupsShown
  return (
    <Box mb="lg">
      <DataTable
        label={t('deadLetters.summary')}
        isFramed
        rows={areAllShown ? groups : groups.slice(0, groupsShown)}
        keyOf={({ pipeline, output, reason }) => `${pipeline}/${output}/${reason}`}
        columns={[
          {
            name: 'pipeline',
            title: t('deliveries.pipeline'),
            cell: ({ pipeline, output }) => <NameAndPart name={nameOf(pipeline)} part={output} />,
            sortBy: ({ pipeline }) => nameOf(pipeline),
            isLead: true,
          },
          { name: 'reason', title: t('pipelines.reason'), cell: ({ reason }) => reasonLabel(t, reason) },
          {
            name: 'count',
            title: t('deadLetters.count'),
            cell: (group) => <span data-count={group.reason}>{count(group.count, i18n.language)}</span>,
            sortBy: (group) => group.count,
            isNumber: true,
          },
          { name: 'oldest', title: t('deadLetters.oldest'), cell: ({ oldest }) => <Time at={oldest} />, sortBy: ({ oldest }) => oldest, isStill: true },
          { name: 'next', title: t('deadLetters.next'), cell: ({ next_due }) => (next_due ? <Time at={next_due} /> : t('deadLetters.byHand')), isStill: true },
        ]}
      />
      {!areAllShown && (
        <Button mt="xs" size="xs" variant="subtle" onClick={() => setAllWanted(true)}>
          {t('deadLetters.allGroups', { count: groups.length })}
        </Button>
      )}
    </Box>
  )
}

interface TableProps {
  rows: DeadLetter[]
  chosen: Set<string>
  setChosen: (chosen: Set<string>) => void
  onShow: (id: string) => void
}

function LetterTable({ rows, chosen, setChosen, onShow }: TableProps) {
  const { t } = useTranslation()
  const mayAct = useMay('operator')
  const nameOf = usePipelineName()
  return (
    <DataTable
      label={t('deadLetters.title')}
      isFramed
      rows={rows}
      keyOf={({ id }) => id}
      onOpen={({ id }) => onShow(id)}
      selection={mayAct ? { chosen, onChange: setChosen, label: ({ message_id }) => t('deadLetters.choose', { id: message_id }) } : undefined}
      columns={[
        {
          name: 'pipeline',
          title: t('deliveries.pipeline'),
          cell: ({ pipeline, output, stage }) => <NameAndPart name={nameOf(pipeline)} part={output || stage} />,
          isLead: true,
        },
        {
          name: 'error',
          title: t('pipelines.message'),
          cell: ({ id, error, reason }) => (
            <UnstyledButton fz="sm" onClick={() => onShow(id)}>
              {error || reasonLabel(t, reason)}
            </UnstyledButton>
          ),
          isWide: true,
        },
        { name: 'state', title: t('common.status'), cell: ({ state }) => <StateBadge state={state} /> },
        { name: 'failed', title: t('deadLetters.failedAt'), cell: ({ last_at }) => <Time at={last_at} />, isStill: true },
        { name: 'attempts', title: t('deadLetters.attempts'), cell: ({ attempts }) => attempts, isNumber: true },
        { name: 'next', title: t('deadLetters.next'), cell: ({ due_at }) => due_at && <Time at={due_at} />, isStill: true },
      ]}
    />
  )
}
