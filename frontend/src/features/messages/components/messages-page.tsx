import { Alert, Anchor, Badge, Button, Card, Code, Group, Stack, Text, TextInput, Title } from '@mantine/core'
import { IconCircleCheck, IconCircleX, IconInbox, IconMailOff, IconMailX, IconReportMoney, IconSearch } from '@tabler/icons-react'
import { useState, type SubmitEvent } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, useSearchParams } from 'react-router'

import { DataTable } from '@/components/data-table'
import { NameAndPart } from '@/components/name-and-part'
import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { useMatches, useWay, type Wanted } from '@/features/messages/api/messages'
import classes from '@/features/messages/components/way.module.css'
import { barOf, type EventKind, type WayEvent } from '@/features/messages/way'
import { elapsed } from '@/lib/format'
import { usePipelineName } from '@/lib/queries/pipelines'
import { reasonLabel } from '@/lib/reasons'

const isMessageId = (text: string) => /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i.test(text)

/** Finds a message by its id, its key, a part of an error, or by time, and shows its whole way. */
export function MessagesPage() {
  const { t } = useTranslation()
  const [parameters, setParameters] = useSearchParams()
  const id = parameters.get('message_id') ?? ''
  const wanted: Wanted = {
    search: parameters.get('search') ?? '',
    since: parameters.get('since') ?? '',
    until: parameters.get('until') ?? '',
  }
  return (
    <Page purpose={t('messages.purpose')}>
      <Stack gap="lg">
        <Search key={parameters.toString()} text={id || wanted.search} wanted={wanted} onSearch={setParameters} />
        {id ? <Way id={id} /> : <Matches wanted={wanted} />}
      </Stack>
    </Page>
  )
}

interface SearchProps {
  text: string
  wanted: Wanted
  onSearch: (parameters: Record<string, string>) => void
}

function Search({ text: searched, wanted, onSearch }: SearchProps) {
  const { t } = useTranslation()
  const [text, setText] = useState(searched)
  const [since, setSince] = useState(local(wanted.since))
  const [until, setUntil] = useState(local(wanted.until))
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    const search = text.trim()
    if (isMessageId(search)) onSearch({ message_id: search })
    else onSearch({ ...(search && { search }), ...(since && { since: new Date(since).toISOString() }), ...(until && { until: new Date(until).toISOString() }) })
  }
  return (
    <form onSubmit={submit} role="search">
      <Group align="flex-end">
        <TextInput
          style={{ flex: '1 1 320px' }}
          label={t('messages.search')}
          placeholder={t('messages.searchHint')}
          data-search
          leftSection={<IconSearch size={16} aria-hidden />}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
        />
        <TextInput type="datetime-local" label={t('messages.since')} value={since} onChange={(event) => setSince(event.currentTarget.value)} />
        <TextInput type="datetime-local" label={t('messages.until')} value={until} onChange={(event) => setUntil(event.currentTarget.value)} />
        <Button type="submit">{t('messages.find')}</Button>
      </Group>
    </form>
  )
}

/** A moment as a field for local time writes it. */
function local(moment: string): string {
  if (!moment) return ''
  const date = new Date(moment)
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16)
}

function Matches({ wanted }: { wanted: Wanted }) {
  const { t } = useTranslation()
  const nameOf = usePipelineName()
  const query = useMatches(wanted)
  if (!wanted.search && !wanted.since && !wanted.until) return <Empty title={t('messages.start')} hint={t('messages.startHint')} />
  return (
    <Loaded query={query}>
      {(matches) =>
        matches.length ? (
          <DataTable
            label={t('messages.matches')}
            isFramed
            rows={matches}
            keyOf={({ id }) => id}
            columns={[
              {
                name: 'id',
                title: t('deliveries.messageId'),
                cell: ({ id }) => (
                  <Anchor component={Link} to={`/messages?message_id=${encodeURIComponent(id)}`} ff="monospace" size="sm" style={{ overflowWrap: 'anywhere' }}>
                    {id}
                  </Anchor>
                ),
                isLead: true,
              },
              { name: 'pipeline', title: t('deliveries.pipeline'), cell: ({ pipeline, output }) => <NameAndPart name={nameOf(pipeline)} part={output} /> },
              { name: 'at', title: t('pipelines.at'), cell: ({ at }) => <Time at={at} />, sortBy: ({ at }) => at, isStill: true },
              { name: 'error', title: t('pipelines.message'), cell: ({ error }) => error || '–', isWide: true },
            ]}
          />
        ) : (
          <Empty title={t('messages.none')} hint={t('messages.noneHint')} />
        )
      }
    </Loaded>
  )
}

const looks = {
  accepted: [IconInbox, 'gray'],
  attempt: [IconCircleCheck, 'green'],
  failedAttempt: [IconCircleX, 'red'],
  deadLetter: [IconMailX, 'yellow'],
  closed: [IconMailOff, 'gray'],
  billed: [IconReportMoney, 'gray'],
} satisfies Record<EventKind, [typeof IconInbox, string]>

function Way({ id }: { id: string }) {
  const { t, i18n } = useTranslation()
  const nameOf = usePipelineName()
  const query = useWay(id)
  return (
    <Loaded query={query}>
      {(way) => {
        const [first] = way
        if (!first) return <Empty title={t('messages.none')} hint={t('messages.noneHint')} />
        return (
          <Card withBorder>
            <Title order={2} size="h5">
              {nameOf(first.pipeline)}
            </Title>
            <Text size="sm" c="dimmed" mb="md">
              {t('deliveries.messageId')}: <Code>{id}</Code>
            </Text>
            <ol className={classes.way} aria-label={t('messages.way')}>
              {way.map((event, index) => (
                <li key={index} className={classes.event}>
                  <Happened event={event} />
                  <Text size="xs" c="dimmed" className={classes.when}>
                    {index === 0 ? <Time at={new Date(event.at).toISOString()} /> : `+${elapsed(event.at - first.at, i18n.language)}`}
                    {event.milliseconds !== undefined && ` · ${elapsed(event.milliseconds, i18n.language)}`}
                  </Text>
                  <Bar event={event} way={way} />
                </li>
              ))}
            </ol>
            {!way.some(({ kind }) => kind === 'attempt') && (
              <Alert color="gray" mt="md">
                {t('messages.sampled')}
              </Alert>
            )}
          </Card>
        )
      }}
    </Loaded>
  )
}

function Bar({ event, way }: { event: WayEvent; way: WayEvent[] }) {
  const { left, width } = barOf(event, way)
  return (
    <span className={classes.track} aria-hidden>
      <span className={classes.bar} data-kind={event.kind} style={{ left: `min(${left}%, 100% - 4px)`, width: `${width}%` }} />
    </span>
  )
}

/** One line on what happened, and what the other side answered. */
function Happened({ event: { kind, output, attempt, letter } }: { event: WayEvent }) {
  const { t } = useTranslation()
  const [Icon, color] = looks[kind]
  const answer = kind === 'deadLetter' ? letter?.error : attempt?.error || attempt?.response
  return (
    <div className={classes.what}>
      <Group gap={6}>
        <Badge color={color} variant="light" tt="none" miw="max-content" leftSection={<Icon size={12} aria-hidden />}>
          {kind === 'closed' && letter ? t(`deadLetters.state.${letter.state}`) : t(`messages.kinds.${kind}`)}
        </Badge>
        {output && <Text size="sm">{output}</Text>}
        {attempt && (
          <Text size="sm" c="dimmed">
            {t('messages.try', { number: attempt.number })}
            {(attempt.status || attempt.reason) && `, ${attempt.status || reasonLabel(t, attempt.reason ?? '')}`}
          </Text>
        )}
        {kind === 'deadLetter' && letter && (
          <Text size="sm" c="dimmed">
            {reasonLabel(t, letter.reason)}
          </Text>
        )}
      </Group>
      {answer && (
        <Text size="xs" style={{ overflowWrap: 'anywhere' }}>
          {answer.slice(0, 400)}
        </Text>
      )}
    </div>
  )
}
