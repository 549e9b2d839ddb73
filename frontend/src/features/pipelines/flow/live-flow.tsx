import { Badge, Button, Card, Code, Drawer, Group, Stack, Table, Text, Title } from '@mantine/core'
import { IconPencil } from '@tabler/icons-react'
import type { TFunction } from 'i18next'
import { useMemo, useState, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { Flow } from '@/features/pipelines/flow'
import { useVersion, type Config } from '@/features/pipelines/api/pipelines'
import { eventName, eventsOf, stepNumber, stepRates } from '@/features/pipelines/events'
import { count, perSecond } from '@/lib/format'
import { toJson } from '@/lib/json'
import { useLive } from '@/lib/live'
import { useOutputs } from '@/lib/queries/outputs'
import type { Pipeline } from '@/lib/queries/pipelines'
import { includes, useRole } from '@/lib/queries/session'

import type { Look } from './flow-graph'
import { partsOf, type Part } from './parts'
import { useNames } from './use-names'

interface Props {
  pipeline: Pipeline
  /** Of the last seconds, per second, by event. */
  rates: Record<string, number>
  last24: Record<string, number> | undefined
  /** The state of an output, and what can be done about it. */
  output: (name: string) => ReactNode
}

/** The picture of a pipeline with what happens in it now; a click opens a node at the side. */
export function LiveFlow({ pipeline, rates, last24, output }: Props) {
  const { t, i18n } = useTranslation()
  const [selected, setSelected] = useState<string>()
  const config = usePublishedConfig(pipeline)
  const parts = useMemo(() => partsOf(config), [config])
  const looks = useLiveLooks(pipeline.id, parts, rates)
  const perSecondOf = (value: number) => t('flow.rate', { rate: perSecond(value, i18n.language) })
  const into = rateOf(rates, 'input.accepted') + rateOf(rates, 'filtering.matched')
  const edges = new Map<string, string>([['transforms', perSecondOf(into)]])
  for (const { path, kind, value } of parts) {
    if (kind === 'output') edges.set(path, perSecondOf(rateOf(rates, `output.${String(value.name)}.delivered`)))
  }
  const part = parts.find(({ path }) => path === selected)
  return (
    <>
      <Flow parts={parts} looks={looks} rates={edges} selected={selected} onSelect={setSelected} />
      <Drawer
        opened={selected !== undefined}
        onClose={() => setSelected(undefined)}
        position="right"
        title={selected ? looks.get(selected)?.title : ''}
      >
        {selected && <Detail pipeline={pipeline} path={selected} part={part} rates={rates} last24={last24} output={output} />}
      </Drawer>
    </>
  )
}

/** What runs: the published version, which may not be the newest. */
function usePublishedConfig(pipeline: Pipeline): Config {
  const { published_version: published, version } = pipeline
  const isOlder = published !== null && published !== version
  const older = useVersion(pipeline.id, isOlder ? published : null)
  return (isOlder && older.data?.config) || pipeline.config
}

const rateOf = (rates: Record<string, number>, event: string) => rates[event] ?? 0

/** The nodes with the state of what they stand for. */
function useLiveLooks(pipeline: string, parts: Part[], rates: Record<string, number>): Map<string, Look> {
  const { t, i18n } = useTranslation()
  const namesOf = useNames()
  const outputs = useOutputs(pipeline).data
  const live = useLive().outputs[pipeline]
  const steps = parts.filter(({ kind }) => kind === 'step').length
  const [failing, dropped] = ['adapting.dead', 'adapting.dropped'].map((event) => rateOf(rates, event))
  return useMemo(() => {
    const written = (value: number) => t('flow.rate', { rate: perSecond(value, i18n.language) })
    const frame: Look = { title: t('flow.steps', { count: steps }), detail: '' }
    if (failing) frame.state = { text: t('flow.failing', { rate: written(failing) }), label: t('events.deadEvent'), tone: 'red' }
    else if (dropped) frame.state = { text: t('flow.dropped', { rate: written(dropped) }), label: t('events.dropped') }
    const looks = new Map<string, Look>([['transforms', frame]])
    const through = stepRates(rates, rateOf(rates, 'input.accepted') + rateOf(rates, 'filtering.matched'), steps)
    for (const part of parts) {
      const name = String(part.value.name)
      const isCall = part.kind === 'step' && part.value.type === 'call'
      const state = outputs?.find((output) => output.name === (isCall ? `api.${name}` : name))
      const current = live?.[state?.name ?? ''] ?? state
      const breaker = part.kind === 'output' || isCall ? current?.breaker : undefined
      const look: Look = namesOf(part)
      const step = part.kind === 'step' ? through[stepNumber(part) - 1] : undefined
      if (step) look.state = stepState(step, written, t)
      if (breaker && breaker.state !== 'closed') {
        const label = t(`outputs.breaker.${breaker.state}`)
        look.state = { text: part.kind === 'step' ? '!' : label, label, tone: breaker.state === 'open' ? 'red' : 'yellow' }
      } else if (part.kind === 'output' && current?.dead_letters) {
        const label = t('flow.deadLetters', { count: current.dead_letters })
        look.state = { text: label, label, tone: 'yellow' }
      }
      looks.set(part.path, look)
    }
    return looks
  }, [parts, steps, failing, dropped, rates, outputs, live, namesOf, t, i18n.language])
}

/** What reaches a step, and what it keeps from going on. */
function stepState(step: ReturnType<typeof stepRates>[number], written: (rate: number) => string, t: TFunction): Look['state'] {
  if (step.failing) return { text: `−${written(step.failing)}`, label: t('flow.stepFailing', { rate: written(step.failing) }), tone: 'red' }
  if (step.dropped) return { text: `−${written(step.dropped)}`, label: t('flow.stepDropped', { rate: written(step.dropped) }), tone: 'yellow' }
  return { text: written(step.reaching), label: t('flow.stepReached', { rate: written(step.reaching) }) }
}

interface DetailProps extends Props {
  path: string
  /** None for the frame around the steps. */
  part: Part | undefined
}

function Detail({ pipeline, path, part, rates, last24 = {}, output }: DetailProps) {
  const { t, i18n } = useTranslation()
  const role = useRole()
  const events = eventsOf(part, Object.keys(last24))
  return (
    <Stack gap="md">
      {part?.kind === 'output' && output(String(part.value.name))}
      {part?.kind === 'step' && part.value.type === 'call' && output(`api.${String(part.value.name)}`)}
      <Card withBorder>
        <Title order={3} size="h6" mb="xs">
          {t('flow.last24')}
        </Title>
        {events.length ? (
          <Table>
            <Table.Tbody>
              {events.map((event) => (
                <Table.Tr key={event}>
                  <Table.Td>{t(`events.${eventName(event)}`)}</Table.Td>
                  <Table.Td ta="right">{count(last24[event] ?? 0, i18n.language)}</Table.Td>
                  <Table.Td ta="right">{t('flow.rate', { rate: perSecond(rates[event] ?? 0, i18n.language) })}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        ) : (
          <Text size="sm" c="dimmed">
            {part?.kind === 'step' ? t('flow.noneEnded') : t('flow.noCounts')}
          </Text>
        )}
      </Card>
      {part && <Settings value={part.value} />}
      {includes(role, 'editor') && (
        <Group>
          <Button size="xs" component={Link} to={`/pipelines/${pipeline.id}/edit?part=${part ? path : 'transforms.0'}`} leftSection={<IconPencil size={14} />}>
            {t('flow.edit')}
          </Button>
        </Group>
      )}
    </Stack>
  )
}

/** What is configured at a part, without what was left as it is by default. */
function Settings({ value }: { value: Part['value'] }) {
  const { t } = useTranslation()
  const entries = Object.entries(value).filter(([name, set]) => name !== 'connector' && set !== null && toJson(set) !== '{}')
  return (
    <Card withBorder>
      <Title order={3} size="h6" mb="xs">
        {t('flow.settings')}
      </Title>
      <Table>
        <Table.Tbody>
          {entries.map(([name, set]) => (
            <Table.Tr key={name}>
              <Table.Td style={{ verticalAlign: 'top' }}>
                <Badge variant="light" color="gray" tt="none" radius="sm">
                  {name}
                </Badge>
              </Table.Td>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>
                {typeof set === 'object' ? (
                  <Code block style={{ whiteSpace: 'pre-wrap' }}>
                    {toJson(set, 1)}
                  </Code>
                ) : (
                  <Text size="sm">{typeof set === 'string' ? set : toJson(set)}</Text>
                )}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Card>
  )
}
