import { Alert, Button, Card, Code, Group, Select, SimpleGrid, Stack, Table, Text, Textarea, Title } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { toastFailed } from '@/components/toasts'
import { useCapturedMessages, useDryRun, type Pipeline } from '@/features/pipelines/api/pipelines'
import type { components } from '@/lib/api/schema'
import { dateAndTime } from '@/lib/format'
import { usePreferences } from '@/lib/preferences'

type DryRun = components['schemas']['DryRun']

/** A message, captured or written, through every step of the newest version; nothing is sent. */
export function PipelineDryRun({ pipeline }: { pipeline: Pipeline }) {
  const { t } = useTranslation()
  const [body, setBody] = useState('')
  const run = useDryRun(pipeline.id)
  return (
    <Stack gap="lg">
      <Text size="sm" c="dimmed">
        {t('dryRun.purpose', { version: pipeline.version })}
      </Text>
      <CapturedChoice id={pipeline.id} onChoose={setBody} />
      <Textarea
        label={t('dryRun.body')}
        autosize
        minRows={5}
        maxRows={18}
        styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)' } }}
        value={body}
        onChange={(event) => setBody(event.currentTarget.value)}
      />
      <Group>
        <Button loading={run.isPending} onClick={() => run.mutate(body, { onError: toastFailed })}>
          {t('dryRun.run')}
        </Button>
      </Group>
      {run.data && <Outcome outcome={run.data} />}
    </Stack>
  )
}

function CapturedChoice({ id, onChoose }: { id: string; onChoose: (body: string) => void }) {
  const { t, i18n } = useTranslation()
  const { timeZone } = usePreferences()
  const messages = useCapturedMessages(id)
  const found = messages.data ?? []
  return (
    <Select
      maw={420}
      label={t('dryRun.captured')}
      placeholder={messages.isPending ? t('common.loading') : t(found.length ? 'dryRun.choose' : 'dryRun.noneCaptured')}
      disabled={!found.length}
      data={found.map((message) => ({
        value: message.id,
        label: `${dateAndTime(new Date(message.received_at), i18n.language, timeZone)}  ${message.body.slice(0, 40)}`,
      }))}
      onChange={(chosen) => onChoose(found.find((message) => message.id === chosen)?.body ?? '')}
    />
  )
}

function Outcome({ outcome }: { outcome: DryRun }) {
  const { t } = useTranslation()
  return (
    <Stack gap="md" aria-live="polite">
      {outcome.steps.map((step, index) => (
        <Card withBorder key={step.name}>
          <Title order={3} size="h5" mb="sm">
            {step.name}
          </Title>
          <SimpleGrid cols={{ base: 1, md: 2 }}>
            <Documents label={t('changes.before')} documents={step.before} />
            <Documents
              label={t('changes.after')}
              documents={step.after}
              none={t(index === outcome.steps.length - 1 && outcome.error ? 'dryRun.refused' : 'dryRun.dropped')}
            />
          </SimpleGrid>
        </Card>
      ))}
      {outcome.error && (
        <Alert color="red" title={t('dryRun.deadLetter')}>
          {outcome.error}
        </Alert>
      )}
      {!outcome.error && !outcome.results.length && <Alert color="yellow">{t('dryRun.droppedAll')}</Alert>}
      {outcome.outputs.length > 0 && (
        <Card withBorder>
          <Title order={3} size="h5" mb="sm">
            {t('dryRun.delivered', { count: outcome.results.length })}
          </Title>
          <Table mb="md">
            <Table.Tbody>
              {outcome.outputs.map((output) => (
                <Table.Tr key={output.name}>
                  <Table.Td>{output.name}</Table.Td>
                  <Table.Td style={{ overflowWrap: 'anywhere' }}>
                    {output.error ? <Text c="red">{output.error}</Text> : <Code>{output.target}</Code>}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
          <Documents label={t('dryRun.bodies')} documents={outcome.results} />
        </Card>
      )}
    </Stack>
  )
}

function Documents({ label, documents, none }: { label: string; documents: string[]; none?: string }) {
  return (
    <Stack gap={4}>
      <Text size="xs" c="dimmed">
        {label}
      </Text>
      {documents.map((document, index) => (
        <Code block key={index} style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }}>
          {document}
        </Code>
      ))}
      {!documents.length && <Text size="sm">{none}</Text>}
    </Stack>
  )
}
