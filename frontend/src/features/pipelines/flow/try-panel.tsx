import { Button, Checkbox, Group, Select, Stack, Text, Textarea, TextInput } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { toastFailed } from '@/components/toasts'
import { useCallApis, useCapturedMessages, type Config, type DryRun } from '@/features/pipelines/api/pipelines'
import { PlaygroundExamples, type Example } from '@/features/pipelines/components/playground-examples'
import { PlaygroundOutcome } from '@/features/pipelines/components/playground-outcome'
import { PlaygroundReplay } from '@/features/pipelines/components/playground-replay'
import { dateAndTime } from '@/lib/format'
import { usePreferences } from '@/lib/preferences'

import { sampleOf, triedOf, type Sample } from './trial'

interface Props {
  pipeline: string
  config: Config
  sample: Sample
  onSample: (sample: Sample) => void
  outcome: DryRun | undefined
  /** Whether the configuration could not be run. */
  isIncorrect: boolean
  onAnswer: (outcome: DryRun) => void
  onExamples: (examples: Example[]) => void
}

/** Walks a message through the picture: what each step makes of it, and what would be delivered. */
export function TryPanel(props: Props) {
  const { pipeline, config, sample, outcome } = props
  const { body } = sample
  const { t } = useTranslation()
  const steps = (config.transforms ?? []) as (object | null)[]
  return (
    <Stack gap="md">
      <Text size="sm" c="dimmed">
        {t('playground.purpose')}
      </Text>
      <Message pipeline={pipeline} sample={sample} onChange={props.onSample} />
      {steps.some((step) => step && 'connector' in step) && body && (
        <CallApis pipeline={pipeline} tried={triedOf(sample, config)} onAnswer={props.onAnswer} />
      )}
      {outcome && body ? (
        <PlaygroundOutcome outcome={outcome} />
      ) : (
        <Text size="sm" c="dimmed">
          {t(props.isIncorrect ? 'playground.incorrect' : 'playground.waiting')}
        </Text>
      )}
      {sample.received && <PlaygroundReplay pipeline={pipeline} message={sample.received} config={config} />}
      <PlaygroundExamples
        pipeline={pipeline}
        config={config}
        examples={(config.examples ?? []) as Example[]}
        message={body}
        outcome={outcome}
        onOpen={(input) => props.onSample({ body: input, isBase64: false, contentType: 'application/json' })}
        onChange={props.onExamples}
      />
    </Stack>
  )
}

function Message(props: { pipeline: string; sample: Sample; onChange: (sample: Sample) => void }) {
  const { t, i18n } = useTranslation()
  const { timeZone } = usePreferences()
  const query = useCapturedMessages(props.pipeline, 20)
  const messages = query.data ?? []
  const { sample } = props
  const choose = (id: string | null) => {
    const chosen = messages.find((message) => message.id === id)
    if (chosen) props.onChange(sampleOf(chosen))
  }
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
        value={sample.received ?? null}
        onChange={choose}
      />
      <TextInput
        label={t('playground.contentType')}
        value={sample.contentType}
        onChange={(event) => props.onChange({ ...sample, contentType: event.currentTarget.value, received: undefined })}
      />
      <Checkbox
        label={t('playground.isBase64')}
        checked={sample.isBase64}
        onChange={(event) => props.onChange({ ...sample, isBase64: event.currentTarget.checked, received: undefined })}
      />
      <Textarea
        label={t('playground.body')}
        autosize
        minRows={4}
        maxRows={20}
        spellCheck={false}
        styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 'var(--mantine-font-size-xs)' } }}
        value={sample.body}
        onChange={(event) => props.onChange({ ...sample, body: event.currentTarget.value, received: undefined })}
      />
    </Stack>
  )
}

function CallApis(props: { pipeline: string; tried: ReturnType<typeof triedOf>; onAnswer: (outcome: DryRun) => void }) {
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
