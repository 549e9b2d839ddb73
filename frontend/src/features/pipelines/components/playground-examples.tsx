import { ActionIcon, Badge, Button, Card, Group, Stack, Text, TextInput, Title } from '@mantine/core'
import { IconTrash } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { DataTable } from '@/components/data-table'
import { toastFailed } from '@/components/toasts'
import { useCheckedExamples, type Config, type DryRun } from '@/features/pipelines/api/pipelines'
import type { components } from '@/lib/api/schema'
import { InexactNumberError, parseJson } from '@/lib/json'

export type Example = components['schemas']['Example']

interface Props {
  pipeline: string
  config: Config
  examples: Example[]
  message: string
  outcome: DryRun | undefined
  onOpen: (body: string) => void
  onChange: (examples: Example[]) => void
}

/** The pipeline's examples, whether the steps keep to them, and the present message as a new one. */
export function PlaygroundExamples({ pipeline, config, examples, message, outcome, onOpen, onChange }: Props) {
  const { t } = useTranslation()
  const checked = useCheckedExamples(pipeline, config)
  const failures = new Map(checked.data?.map(({ name, failure }) => [name, failure]))
  return (
    <Card withBorder>
      <Title order={2} size="h5">
        {t('playground.examples')}
      </Title>
      <Text size="sm" c="dimmed" mb="sm">
        {t('playground.examplesHint')}
      </Text>
      <Stack gap="sm">
        {examples.length ? (
          <DataTable
            label={t('playground.examples')}
            rows={examples}
            keyOf={({ name }) => name}
            actions={(example) => (
              <>
                <Button size="compact-xs" variant="default" onClick={() => onOpen(example.input)}>
                  {t('playground.open')}
                </Button>
                <ActionIcon
                  variant="subtle"
                  color="gray"
                  aria-label={t('playground.remove', { name: example.name })}
                  onClick={() => onChange(examples.filter((other) => other !== example))}
                >
                  <IconTrash size={16} />
                </ActionIcon>
              </>
            )}
            columns={[
              { name: 'name', title: t('common.name'), cell: ({ name }) => name, isLead: true },
              { name: 'verdict', title: t('common.status'), cell: ({ name }) => <Verdict failure={failures.get(name)} />, isWide: true },
            ]}
          />
        ) : (
          <Text size="sm">{t('playground.noExamples')}</Text>
        )}
        {outcome && message && !outcome.steps.some((step) => step.passed_over) && !outcome.results.some((result) => result.is_base64) && (
          <Keep
            taken={examples.map((example) => example.name)}
            onKeep={(name) => {
              try {
                onChange([...examples, kept(name, message, outcome)])
              } catch (error) {
                toastFailed(error instanceof InexactNumberError ? t('playground.inexactAnswer') : error)
              }
            }}
          />
        )}
      </Stack>
    </Card>
  )
}

function Verdict({ failure }: { failure: string | undefined }) {
  const { t } = useTranslation()
  if (failure === undefined) return null
  return failure ? (
    <Stack gap={2}>
      <Badge color="red">{t('playground.fails')}</Badge>
      <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
        {failure}
      </Text>
    </Stack>
  ) : (
    <Badge color="green">{t('playground.passes')}</Badge>
  )
}

function Keep({ taken, onKeep }: { taken: string[]; onKeep: (name: string) => void }) {
  const { t } = useTranslation()
  const [name, setName] = useState('')
  return (
    <Group align="flex-end" gap="sm">
      <TextInput
        label={t('playground.keep')}
        placeholder={t('playground.exampleName')}
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <Button
        variant="default"
        disabled={!name.trim() || taken.includes(name.trim())}
        onClick={() => {
          onKeep(name.trim())
          setName('')
        }}
      >
        {t('playground.kept')}
      </Button>
    </Group>
  )
}

/** What was seen becomes what is expected, with what the APIs answered. Throws an InexactNumberError. */
function kept(name: string, input: string, outcome: DryRun): Example {
  const answers = outcome.calls.filter((call) => !call.error).map((call) => [call.name, parseJson(call.answer)])
  return {
    name,
    input,
    answers: Object.fromEntries(answers) as Example['answers'],
    outputs: outcome.results.map((result) => result.body),
    error: outcome.error,
    ignored: [],
  }
}
