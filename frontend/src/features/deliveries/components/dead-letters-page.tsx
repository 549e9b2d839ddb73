import { Button, Card, Checkbox, Group, Stack, Table, Text, UnstyledButton } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { LoadMore } from '@/components/load-more'
import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { useDeadLetters, useDeadLetterSummary, type DeadLetter, type DeadLetterGroup } from '@/features/deliveries/api/deliveries'
import { BulkDialog, type BulkAction } from '@/features/deliveries/components/bulk-dialog'
import { DeadLetterDrawer } from '@/features/deliveries/components/dead-letter-drawer'
import { FilterBar } from '@/features/deliveries/components/filter-bar'
import { StateBadge } from '@/features/deliveries/components/state-badge'
import { count } from '@/lib/format'
import { reasonLabel } from '@/lib/reasons'
import { usePipelineName } from '@/lib/queries/pipelines'
import { useFilter, type Filter } from '@/lib/use-filter'

const states = ['waiting', 'redelivering', 'delivered', 'discarded', 'expired'] as const

export function DeadLettersPage() {
  const { t, i18n } = useTranslation()
  const { filter, set } = useFilter({ state: 'waiting' })
  const letters = useDeadLetters(filter)
  const summary = useDeadLetterSummary(filter)
  const [shown, setShown] = useState<string | null>(null)
  const [chosen, setChosen] = useState<Set<string>>(new Set())
  const [action, setAction] = useState<BulkAction | null>(null)
  const selection: Filter = chosen.size ? { ids: [...chosen].join(',') } : filter
  // Only what waits can be redriven or discarded.
  const waiting = filter.state === 'waiting' ? summary.data : []
  const total = chosen.size || (waiting?.reduce((sum, group) => sum + group.count, 0) ?? 0)
  const reach = count(total, i18n.language)
  const done = () => {
    setAction(null)
    setChosen(new Set())
  }
  return (
    <Page
      purpose={t('deadLetters.purpose')}
      action={
        <Group gap="xs">
          <Button variant="default" disabled={!total} onClick={() => setAction('discard')}>
            {t('deadLetters.discard', { count: reach })}
          </Button>
          <Button disabled={!total} onClick={() => setAction('redrive')}>
            {t('deadLetters.redrive', { count: reach })}
          </Button>
        </Group>
      }
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
      {action && <BulkDialog action={action} filter={selection} onClose={() => setAction(null)} onDone={done} />}
    </Page>
  )
}

function Summary({ groups }: { groups: DeadLetterGroup[] }) {
  const { t, i18n } = useTranslation()
  const nameOf = usePipelineName()
  return (
    <Card withBorder mb="lg">
      <Table.ScrollContainer minWidth={640}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('deliveries.pipeline')}</Table.Th>
              <Table.Th>{t('pipelines.output')}</Table.Th>
              <Table.Th>{t('pipelines.reason')}</Table.Th>
              <Table.Th ta="right">{t('deadLetters.count')}</Table.Th>
              <Table.Th>{t('deadLetters.oldest')}</Table.Th>
              <Table.Th>{t('deadLetters.next')}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {groups.map((group) => (
              <Table.Tr key={`${group.pipeline}/${group.output}/${group.reason}`}>
                <Table.Td>{nameOf(group.pipeline)}</Table.Td>
                <Table.Td>{group.output || '–'}</Table.Td>
                <Table.Td>{reasonLabel(t, group.reason)}</Table.Td>
                <Table.Td ta="right" data-count={group.reason}>
                  {count(group.count, i18n.language)}
                </Table.Td>
                <Table.Td>
                  <Time at={group.oldest} />
                </Table.Td>
                <Table.Td>{group.next_due ? <Time at={group.next_due} /> : t('deadLetters.byHand')}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Card>
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
  const nameOf = usePipelineName()
  const toggle = (id: string) => {
    const next = new Set(chosen)
    if (!next.delete(id)) next.add(id)
    setChosen(next)
  }
  const all = rows.every((row) => chosen.has(row.id))
  return (
    <Table.ScrollContainer minWidth={820}>
      <Table highlightOnHover>
        <Table.Thead>
          <Table.Tr>
            <Table.Th w={36}>
              <Checkbox
                aria-label={t('deadLetters.chooseAll')}
                checked={all}
                indeterminate={!all && chosen.size > 0}
                onChange={() => setChosen(new Set(all ? [] : rows.map((row) => row.id)))}
              />
            </Table.Th>
            <Table.Th>{t('deadLetters.failedAt')}</Table.Th>
            <Table.Th>{t('deliveries.pipeline')}</Table.Th>
            <Table.Th>{t('common.status')}</Table.Th>
            <Table.Th>{t('pipelines.message')}</Table.Th>
            <Table.Th ta="right">{t('deadLetters.attempts')}</Table.Th>
            <Table.Th>{t('deadLetters.next')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row) => (
            <Table.Tr key={row.id} style={{ cursor: 'pointer' }} onClick={() => onShow(row.id)}>
              <Table.Td onClick={(event) => event.stopPropagation()}>
                <Checkbox
                  aria-label={t('deadLetters.choose', { id: row.message_id })}
                  checked={chosen.has(row.id)}
                  onChange={() => toggle(row.id)}
                />
              </Table.Td>
              <Table.Td>
                <Time at={row.last_at} />
              </Table.Td>
              <Table.Td>
                <Stack gap={0}>
                  <span>{nameOf(row.pipeline)}</span>
                  <Text size="xs" c="dimmed">
                    {row.output || row.stage}
                  </Text>
                </Stack>
              </Table.Td>
              <Table.Td>
                <StateBadge state={row.state} />
              </Table.Td>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>
                <UnstyledButton fz="sm" onClick={() => onShow(row.id)}>
                  {row.error || row.reason}
                </UnstyledButton>
              </Table.Td>
              <Table.Td ta="right">{row.attempts}</Table.Td>
              <Table.Td>{row.due_at ? <Time at={row.due_at} /> : '–'}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  )
}
