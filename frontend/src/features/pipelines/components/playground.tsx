import { Button, Card, Grid, Group, Select, Stack, Text, Textarea, Title } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useState, type SetStateAction } from 'react'
import { useTranslation } from 'react-i18next'

import { toastDone, toastFailed } from '@/components/toasts'
import {
  useCallApis,
  useCapturedMessages,
  useDryRun,
  useSavePipeline,
  type Config,
  type DryRun,
} from '@/features/pipelines/api/pipelines'
import { ConfigForm } from '@/features/pipelines/components/config-form'
import { PlaygroundExamples, type Example } from '@/features/pipelines/components/playground-examples'
import { PlaygroundOutcome } from '@/features/pipelines/components/playground-outcome'
import { Problem } from '@/lib/api/problem'
import { below } from '@/lib/error-paths'
import { dateAndTime } from '@/lib/format'
import { usePreferences } from '@/lib/preferences'
import type { Pipeline } from '@/lib/queries/pipelines'

/** A message on the left, the steps in the middle, and what each of them makes of it on the right. */
export function Playground({ pipeline }: { pipeline: Pipeline }) {
  const { t } = useTranslation()
  const [draft, setDraft] = useState<Config>(pipeline.config)
  const [version, setVersion] = useState(pipeline.version)
  if (version !== pipeline.version) {
    // It was saved, here or by somebody else: the message stays.
    setVersion(pipeline.version)
    setDraft(pipeline.config)
  }
  const [body, setBody] = useState('')
  // With the external APIs' answers, until the message or a step changes.
  const [answered, setAnswered] = useState<DryRun>()
  const [tried] = useDebouncedValue({ body, config: draft }, 400)
  const run = useDryRun(pipeline.id, tried)
  const outcome = answered ?? run.data
  const errors = run.error instanceof Problem ? run.error.errors : {}
  const steps = (draft.transforms ?? []) as (object | null)[]

  function change(next: SetStateAction<Config>) {
    setAnswered(undefined)
    setDraft(next)
  }

  return (
    <Stack gap="lg">
      <Text size="sm" c="dimmed" maw={860}>
        {t('playground.purpose')}
      </Text>
      <Grid>
        <Grid.Col span={{ base: 12, lg: 3 }}>
          <Message
            pipeline={pipeline.id}
            body={body}
            onChange={(next) => {
              setAnswered(undefined)
              setBody(next)
            }}
          />
        </Grid.Col>
        <Grid.Col span={{ base: 12, lg: 5 }}>
          <Card withBorder>
            <ConfigForm
              pipeline={pipeline.id}
              only="transforms"
              value={{ transforms: draft.transforms }}
              onChange={({ transforms }) => change((before) => ({ ...before, transforms }))}
              onSubmit={() => undefined}
              errors={below(errors, 'config')}
            />
          </Card>
        </Grid.Col>
        <Grid.Col span={{ base: 12, lg: 4 }}>
          <Card withBorder>
            <Group justify="space-between" mb="sm">
              <Title order={3} size="h5">
                {t('playground.result')}
              </Title>
              {steps.some((step) => step && 'connector' in step) && body && (
                <CallApis pipeline={pipeline.id} tried={{ body, config: draft }} onAnswer={setAnswered} />
              )}
            </Group>
            {outcome && body ? (
              <PlaygroundOutcome outcome={outcome} />
            ) : (
              <Text size="sm" c="dimmed">
                {t(run.error ? 'playground.incorrect' : 'playground.waiting')}
              </Text>
            )}
          </Card>
        </Grid.Col>
      </Grid>
      <PlaygroundExamples
        pipeline={pipeline.id}
        config={tried.config}
        examples={(draft.examples ?? []) as Example[]}
        message={body}
        outcome={outcome}
        onOpen={setBody}
        onChange={(examples) => setDraft((before) => ({ ...before, examples }))}
      />
      <Saving pipeline={pipeline} draft={draft} onRevert={() => change(pipeline.config)} />
    </Stack>
  )
}

function Message(props: { pipeline: string; body: string; onChange: (body: string) => void }) {
  const { t, i18n } = useTranslation()
  const { timeZone } = usePreferences()
  const query = useCapturedMessages(props.pipeline)
  const messages = query.data ?? []
  return (
    <Card withBorder>
      <Stack gap="sm">
        <Select
          label={t('playground.captured')}
          placeholder={
            query.isPending ? t('common.loading') : t(messages.length ? 'playground.choose' : 'playground.noneCaptured')
          }
          disabled={!messages.length}
          data={messages.map((message) => ({
            value: message.id,
            label: `${dateAndTime(new Date(message.received_at), i18n.language, timeZone)}  ${message.body.slice(0, 40)}`,
          }))}
          onChange={(chosen) => props.onChange(messages.find((message) => message.id === chosen)?.body ?? '')}
        />
        <Textarea
          label={t('playground.body')}
          autosize
          minRows={6}
          maxRows={24}
          styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 'var(--mantine-font-size-xs)' } }}
          value={props.body}
          onChange={(event) => props.onChange(event.currentTarget.value)}
        />
      </Stack>
    </Card>
  )
}

function CallApis(props: { pipeline: string; tried: { body: string; config: Config }; onAnswer: (outcome: DryRun) => void }) {
  const { t } = useTranslation()
  const call = useCallApis(props.pipeline)
  return (
    <Button
      size="xs"
      variant="default"
      title={t('playground.callApisHint')}
      loading={call.isPending}
      onClick={() => call.mutate(props.tried, { onSuccess: props.onAnswer, onError: toastFailed })}
    >
      {t('playground.callApis')}
    </Button>
  )
}

function Saving({ pipeline, draft, onRevert }: { pipeline: Pipeline; draft: Config; onRevert: () => void }) {
  const { t } = useTranslation()
  const save = useSavePipeline(pipeline.id, pipeline.etag)
  if (JSON.stringify(draft) === JSON.stringify(pipeline.config)) return null
  return (
    <Group justify="flex-end">
      <Button variant="default" onClick={onRevert}>
        {t('playground.revert')}
      </Button>
      <Button
        loading={save.isPending}
        onClick={() =>
          save.mutate(
            { name: pipeline.name, config: draft },
            {
              onSuccess: ({ version }) => toastDone(t('playground.saved', { version })),
              onError: toastFailed,
            },
          )
        }
      >
        {t('playground.saveSteps')}
      </Button>
    </Group>
  )
}
