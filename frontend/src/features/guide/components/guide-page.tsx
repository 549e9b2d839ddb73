import { Alert, Button, Card, Code, Group, Radio, Stack, Text, TextInput, ThemeIcon, Title } from '@mantine/core'
import { IconCircleCheck, IconLoader } from '@tabler/icons-react'
import { useState, type ReactNode, type SubmitEvent } from 'react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { Page } from '@/components/page'
import { SendSample } from '@/components/send-sample'
import { toastFailed } from '@/components/toasts'
import { useFirstPipeline, useHasReceiver, useTaken } from '@/features/guide/api/guide'
import { Problem } from '@/lib/api/problem'
import { count } from '@/lib/format'
import { useLiveCounts } from '@/lib/live'
import type { Pipeline } from '@/lib/queries/pipelines'
import { accepted, deadIn, deliveredIn } from '@/lib/rates'

type Place = 'here' | 'url'

/** From nothing to one's own delivered message: a pipeline, a command that sends, and what arrives, seen live. */
export function GuidePage() {
  const { t } = useTranslation()
  const [pipeline, setPipeline] = useState<Pipeline | null>(null)
  // The built-in receiver keeps what each run of the guide sent under a name of its own.
  const [receiver] = useState(() => `guide-${crypto.randomUUID().slice(0, 8)}`)
  const [place, setPlace] = useState<Place | null>(null)
  return (
    <Page title={t('guide.title')} purpose={t('guide.purpose')}>
      <Stack gap="lg" maw={860}>
        <Step number={1} title={t('guide.where')} isDone={pipeline !== null}>
          {pipeline ? (
            <Text size="sm">{t('guide.made', { name: pipeline.name })}</Text>
          ) : (
            <Where
              receiver={receiver}
              onMade={(made, chosen) => {
                setPipeline(made)
                setPlace(chosen)
              }}
            />
          )}
        </Step>
        {pipeline?.ingest_url && <Send pipeline={pipeline} url={pipeline.ingest_url} />}
        {pipeline && <Arrived pipeline={pipeline} receiver={place === 'here' ? receiver : ''} />}
        {!pipeline && (
          <>
            <Later number={2} title={t('guide.send')} />
            <Later number={3} title={t('guide.arrive')} />
          </>
        )}
      </Stack>
    </Page>
  )
}

function Step(props: { number: number; title: string; isDone: boolean; children: ReactNode }) {
  return (
    <Card withBorder component="section" aria-label={props.title}>
      <Group gap="sm" mb="sm" wrap="nowrap">
        <ThemeIcon radius="xl" size={28} variant={props.isDone ? 'light' : 'filled'} color={props.isDone ? 'green' : undefined}>
          {props.isDone ? <IconCircleCheck size={18} /> : props.number}
        </ThemeIcon>
        <Title order={2} size="h5">
          {props.title}
        </Title>
      </Group>
      {props.children}
    </Card>
  )
}

/** A step that comes once the ones before it are done. */
function Later({ number, title }: { number: number; title: string }) {
  return (
    <Card withBorder>
      <Group gap="sm" wrap="nowrap" c="dimmed">
        <ThemeIcon radius="xl" size={28} variant="light" color="gray">
          {number}
        </ThemeIcon>
        <Text fw={600}>{title}</Text>
      </Group>
    </Card>
  )
}

function Where({ receiver, onMade }: { receiver: string; onMade: (pipeline: Pipeline, place: Place) => void }) {
  const { t } = useTranslation()
  const hasReceiver = useHasReceiver().data === true
  const [chosen, choose] = useState<Place | null>(null)
  const place = chosen ?? (hasReceiver ? 'here' : 'url')
  const [name, setName] = useState(t('guide.firstName'))
  const [url, setUrl] = useState('')
  const make = useFirstPipeline()
  const errors = make.error instanceof Problem ? make.error.errors : {}
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    const target = place === 'here' ? `${location.origin}/demo/receiver/${receiver}` : url
    make.mutate(
      { name: name.trim(), url: target },
      {
        onSuccess: (pipeline) => onMade(pipeline, place),
        onError: (error) => !(error instanceof Problem && (error.errors.name ?? error.errors['connection.url'])) && toastFailed(error),
      },
    )
  }
  return (
    <form onSubmit={submit}>
      <Stack gap="sm">
        <TextInput
          label={t('guide.name')}
          required
          value={name}
          error={errors.name?.join(' ')}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        {hasReceiver && (
          <Radio.Group label={t('guide.target')} value={place} onChange={(value) => choose(value)}>
            <Stack gap="xs" mt="xs">
              <Radio value="here" label={t('guide.here')} />
              <Radio value="url" label={t('guide.url')} />
            </Stack>
          </Radio.Group>
        )}
        {place === 'url' && (
          <TextInput
            label={t('guide.address')}
            description={t('guide.addressHint')}
            placeholder="https://erp.example.com/orders"
            required
            type="url"
            value={url}
            error={errors['connection.url']?.join(' ')}
            onChange={(event) => setUrl(event.currentTarget.value)}
          />
        )}
        <Group>
          <Button type="submit" loading={make.isPending}>
            {t('guide.make')}
          </Button>
        </Group>
      </Stack>
    </form>
  )
}

function Send({ pipeline, url }: { pipeline: Pipeline; url: string }) {
  const { t } = useTranslation()
  return (
    <Step number={2} title={t('guide.send')} isDone={accepted(useTotals(pipeline.id)) > 0}>
      <SendSample pipeline={pipeline.id} name={pipeline.name} url={url} />
    </Step>
  )
}

/** How many messages of a pipeline had each event. */
function useTotals(pipeline: string): Record<string, number> {
  const { counts } = useLiveCounts([pipeline])
  const totals: Record<string, number> = {}
  for (const events of Object.values(counts[pipeline] ?? {})) {
    for (const [event, n] of Object.entries(events)) totals[event] = (totals[event] ?? 0) + n
  }
  return totals
}

/** What became of the messages, live. */
function Arrived({ pipeline, receiver }: { pipeline: Pipeline; receiver: string }) {
  const { t, i18n } = useTranslation()
  const totals = useTotals(pipeline.id)
  const taken = useTaken(receiver)
  const [came, delivered, failed] = [accepted(totals), deliveredIn(totals), deadIn(totals)]
  const newest = taken.data?.[0]
  const isDone = delivered > 0 || newest !== undefined
  return (
    <Step number={3} title={t('guide.arrive')} isDone={isDone}>
      <Stack gap="sm" aria-live="polite">
        <Text size="sm">
          {t('guide.counts', {
            accepted: count(came, i18n.language),
            delivered: count(Math.max(delivered, taken.data?.length ?? 0), i18n.language),
            failed: count(failed, i18n.language),
          })}
        </Text>
        {!isDone && !failed && (
          <Group gap="xs" c="dimmed">
            <IconLoader size={16} aria-hidden />
            <Text size="sm">{t('guide.waiting')}</Text>
          </Group>
        )}
        {newest && (
          <Code block style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }}>
            {newest.body}
          </Code>
        )}
        {isDone && (
          <Alert color="green" icon={<IconCircleCheck />} title={t('guide.done')}>
            {t('guide.doneText')}
          </Alert>
        )}
        {failed > 0 && (
          <Alert color="red" title={t('guide.failed')}>
            {t('guide.failedText')}
          </Alert>
        )}
        {(isDone || failed > 0) && (
          <Group>
            <Button component={Link} to={`/pipelines/${pipeline.id}`} variant={isDone ? 'filled' : 'default'}>
              {t('guide.open')}
            </Button>
          </Group>
        )}
      </Stack>
    </Step>
  )
}
