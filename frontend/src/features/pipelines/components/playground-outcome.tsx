import { Alert, Badge, Code, Group, Stack, Text, Title } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import type { DryRun } from '@/features/pipelines/api/pipelines'

/** What each step made of a message, and where it would be delivered. */
export function PlaygroundOutcome({ outcome }: { outcome: DryRun }) {
  const { t } = useTranslation()
  const first = outcome.steps[0]
  return (
    <Stack gap="md" aria-live="polite">
      {first && <Documents label={t('playground.before')} documents={first.before} />}
      {outcome.steps.map((step, index) => (
        <Step
          key={step.name}
          step={step}
          error={index === outcome.steps.length - 1 ? outcome.error : ''}
        />
      ))}
      {outcome.error && !first && (
        <Alert color="red" title={t('playground.deadLetter')}>
          {outcome.error}
        </Alert>
      )}
      {outcome.calls.map((call, index) => (
        <Stack gap={4} key={index}>
          <Text size="sm" fw={600}>
            {call.name}
          </Text>
          <Documents label={t('playground.request')} documents={[call.request]} />
          {call.error ? (
            <Text size="sm" c="red">
              {call.error}
            </Text>
          ) : (
            <Documents label={t('playground.answer')} documents={[call.answer]} />
          )}
        </Stack>
      ))}
      {!outcome.error && !outcome.results.length && <Alert color="yellow">{t('playground.droppedAll')}</Alert>}
      {outcome.results.length > 0 && <HandedOn outcome={outcome} />}
      {outcome.outputs.length > 0 && <Delivered outcome={outcome} />}
    </Stack>
  )
}

/** What one step makes of the message: before, and after. */
export function PlaygroundStep({ outcome, index }: { outcome: DryRun; index: number }) {
  const { t } = useTranslation()
  const step = outcome.steps[index]
  if (!step) return null
  return (
    <Stack gap="sm" aria-live="polite">
      <Documents label={t('playground.before')} documents={step.before} />
      <Step step={{ ...step, name: t('playground.after') }} error={index === outcome.steps.length - 1 ? outcome.error : ''} />
    </Stack>
  )
}

function Step({ step, error }: { step: DryRun['steps'][number]; error: string }) {
  const { t } = useTranslation()
  return (
    <Stack gap={4}>
      <Title order={4} size="h6">
        {step.name}
      </Title>
      {step.passed_over && (
        <Text size="sm" c="dimmed">
          {t('playground.passedOver')}
        </Text>
      )}
      {error ? (
        <Alert color="red" title={t('playground.deadLetter')}>
          {error}
        </Alert>
      ) : (
        <Documents documents={step.after} none={t('playground.dropped')} />
      )}
    </Stack>
  )
}

/** The messages behind the steps: what stream processing gets, and what other pipelines may filter by. */
function HandedOn({ outcome }: { outcome: DryRun }) {
  const { t } = useTranslation()
  return (
    <Stack gap={4}>
      {outcome.results.map((result, index) => (
        <Stack gap={4} key={index}>
          {!outcome.outputs.length && (
            <Documents label={t('playground.handedOn', { type: result.content_type })} documents={[result.body]} />
          )}
          {result.index && <Documents label={t('playground.index')} documents={[result.index]} />}
          {result.taken_by.length > 0 && <Text size="sm">{t('playground.takenBy', { names: result.taken_by.join(', ') })}</Text>}
        </Stack>
      ))}
    </Stack>
  )
}

function Delivered({ outcome }: { outcome: DryRun }) {
  const { t } = useTranslation()
  const refusing = outcome.outputs.filter(({ error }) => error).length
  return (
    <Stack gap="sm">
      <Title order={4} size="h6">
        {refusing
          ? t('playground.refused', { count: refusing, outputs: outcome.outputs.length })
          : t('playground.delivered', { count: outcome.results.length })}
      </Title>
      {outcome.outputs.map((output) => (
        <Stack gap={4} key={output.name}>
          <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
            {output.name} <Code>{output.target}</Code>
          </Text>
          {output.error && (
            <Text size="sm" c="red">
              {output.error}
            </Text>
          )}
          {output.sent.map((sent, index) => (
            <Sent key={index} sent={sent} />
          ))}
        </Stack>
      ))}
    </Stack>
  )
}

/** What a receiver gets of one message, and where. */
function Sent({ sent }: { sent: DryRun['outputs'][number]['sent'][number] }) {
  const { t } = useTranslation()
  return (
    <Stack gap={4}>
      {(sent.place || sent.deletes) && (
        <Group gap="xs">
          {sent.place && (
            <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
              {sent.place}
            </Text>
          )}
          {sent.deletes && <Badge color="gray" variant="light" tt="none">{t('playground.deletes')}</Badge>}
        </Group>
      )}
      {(sent.body || !sent.deletes) && <Documents label={t('playground.bodies')} documents={[sent.body]} />}
    </Stack>
  )
}

function Documents({ label, documents, none }: { label?: string; documents: string[]; none?: string }) {
  return (
    <Stack gap={4}>
      {label && (
        <Text size="xs" c="dimmed">
          {label}
        </Text>
      )}
      {documents.map((document, index) => (
        <Code block key={index} style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }}>
          {document}
        </Code>
      ))}
      {!documents.length && <Text size="sm">{none}</Text>}
    </Stack>
  )
}
