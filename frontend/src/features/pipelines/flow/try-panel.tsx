import { Button, Group, Select, Stack, Text, Textarea } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { toastFailed } from '@/components/toasts'
import { useCallApis, useCapturedMessages, type Config, type DryRun } from '@/features/pipelines/api/pipelines'
import { PlaygroundExamples, type Example } from '@/features/pipelines/components/playground-examples'
import { PlaygroundOutcome } from '@/features/pipelines/components/playground-outcome'
import { dateAndTime } from '@/lib/format'
import { usePreferences } from '@/lib/preferences'

interface Props {
  pipeline: string
  config: Config
  body: string
  onBody: (body: string) => void
  outcome: DryRun | undefined
  /** Whether the configuration could not be run. */
  isIncorrect: boolean
  onAnswer: (outcome: DryRun) => void
  onExamples: (examples: Example[]) => void
}

/** Walks a message through the picture: what each step makes of it, and what would be delivered. */
export function TryPanel(props: Props) {
  const { pipeline, config, body, outcome } = props
  const { t } = useTranslation()
  const steps = (config.transforms ?? []) as (object | null)[]
  return (
    <Stack gap="md">
      <Text size="sm" c="dimmed">
        {t('playground.purpose')}
      </Text>
      <Message pipeline={pipeline} body={body} onChange={props.onBody} />
      {steps.some((step) => step && 'connector' in step) && body && (
        <CallApis pipeline={pipeline} tried={{ body, config }} onAnswer={props.onAnswer} />
      )}
      {outcome && body ? (
        <PlaygroundOutcome outcome={outcome} />
      ) : (
        <Text size="sm" c="dimmed">
          {t(props.isIncorrect ? 'playground.incorrect' : 'playground.waiting')}
        </Text>
      )}
      <PlaygroundExamples
        pipeline={pipeline}
        config={config}
        examples={(config.examples ?? []) as Example[]}
        message={body}
        outcome={outcome}
        onOpen={props.onBody}
        onChange={props.onExamples}
      />
    </Stack>
  )
}

function Message(props: { pipeline: string; body: string; onChange: (body: string) => void }) {
  const { t, i18n } = useTranslation()
  const { timeZone } = usePreferences()
  const query = useCapturedMessages(props.pipeline)
  const messages = query.data ?? []
  return (
    <Stack gap="sm">
      <Select
        label={t('playground.captured')}
        placeholder={query.isPending ? t('common.loading') : t(messages.length ? 'playground.choose' : 'playground.noneCaptured')}
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
        minRows={4}
        maxRows={20}
        spellCheck={false}
        styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 'var(--mantine-font-size-xs)' } }}
        value={props.body}
        onChange={(event) => props.onChange(event.currentTarget.value)}
      />
    </Stack>
  )
}

function CallApis(props: { pipeline: string; tried: { body: string; config: Config }; onAnswer: (outcome: DryRun) => void }) {
  const { t } = useTranslation()
  const call = useCallApis(props.pipeline)
  return (
    <Group>
      <Button
        size="xs"
        variant="default"
        title={t('playground.callApisHint')}
        loading={call.isPending}
        onClick={() => call.mutate(props.tried, { onSuccess: props.onAnswer, onError: toastFailed })}
      >
        {t('playground.callApis')}
      </Button>
    </Group>
  )
}
