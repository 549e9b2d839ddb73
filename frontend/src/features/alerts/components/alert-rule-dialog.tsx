import { Button, Group, Modal, NumberInput, Select, Stack, Switch, TextInput } from '@mantine/core'
import { useState, type SubmitEvent } from 'react'
import { useTranslation } from 'react-i18next'

import { useDraft } from '@/components/draft'
import { PipelineSelect } from '@/components/pipeline-select'
import { SearchedSelect } from '@/components/searched-select'
import { toastDone, toastFailed } from '@/components/toasts'
import { useSaveAlertRule, type AlertRule, type AlertRuleDraft } from '@/features/alerts/api/alerts'
import { Problem } from '@/lib/api/problem'
import { useConnectorChoices } from '@/lib/queries/connectors'

export const kinds = [
  'failure_rate',
  'breaker_open',
  'dead_letter_age',
  'dead_letters_expire',
  'export_unstored',
  'stage_lag',
  'job_down',
  'registration',
] as const

/** Kinds that compare with a number, and the number to begin with. */
const thresholds = { failure_rate: 5, dead_letter_age: 60, dead_letters_expire: 72, export_unstored: 60, stage_lag: 10_000 }

function hasThreshold(kind: AlertRule['kind']): kind is keyof typeof thresholds {
  return kind in thresholds
}

const ofPipelines: AlertRule['kind'][] = [
  'failure_rate',
  'breaker_open',
  'dead_letter_age',
  'dead_letters_expire',
  'export_unstored',
  'registration',
]

/** A rule has no secrets. */
const noSecrets = {}

interface Props {
  rule?: AlertRule
  onClose: () => void
}

export function AlertRuleDialog({ rule, onClose }: Props) {
  const { t } = useTranslation()
  const save = useSaveAlertRule(rule?.id)
  const [draft, setDraft] = useState<AlertRuleDraft>(
    rule ?? { name: '', kind: 'failure_rate', threshold: 5, minutes: 5, enabled: true, email: '' },
  )
  const [isDirty, setDirty] = useState(false)
  const [errors, setErrors] = useState<Record<string, string[]>>({})
  const change = (fields: Partial<AlertRuleDraft>) => {
    setDraft((before) => ({ ...before, ...fields }))
    setDirty(true)
  }
  const { offer, forget } = useDraft({
    kind: 'alert-rule',
    thing: rule?.id ?? 'new',
    base: rule && JSON.stringify(rule),
    value: draft,
    isDirty,
    schema: noSecrets,
    onRestore: change,
  })
  const error = (field: string) => errors[field]?.join(' ')
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    save.mutate(draft, {
      onSuccess: () => {
        toastDone(t('common.saved'))
        forget()
        onClose()
      },
      onError: (failure) => {
        setErrors(failure instanceof Problem ? failure.errors : {})
        if (!(failure instanceof Problem) || !Object.keys(failure.errors).length) toastFailed(failure)
      },
    })
  }
  return (
    <Modal opened onClose={onClose} title={rule ? t('alerts.edit') : t('alerts.create')} centered size="lg">
      <form onSubmit={submit} noValidate>
        <Stack>
          {offer}
          <TextInput
            label={t('common.name')}
            required
            value={draft.name}
            error={error('name')}
            onChange={(event) => change({ name: event.currentTarget.value })}
          />
          <Select
            label={t('alerts.kind')}
            allowDeselect={false}
            data={kinds.map((value) => ({ value, label: t(`alerts.kinds.${value}`) }))}
            value={draft.kind}
            onChange={(value) => {
              const kind = value as AlertRule['kind']
              change({ kind, threshold: hasThreshold(kind) ? thresholds[kind] : 0 })
            }}
          />
          {hasThreshold(draft.kind) && (
            <NumberInput
              label={t(`alerts.thresholds.${draft.kind}`)}
              min={0}
              value={draft.threshold}
              error={error('threshold')}
              onChange={(value) => change({ threshold: Number(value) })}
            />
          )}
          {draft.kind === 'failure_rate' && (
            <NumberInput
              label={t('alerts.minutes')}
              min={1}
              max={60}
              value={draft.minutes}
              error={error('minutes')}
              onChange={(value) => change({ minutes: Number(value) })}
            />
          )}
          {ofPipelines.includes(draft.kind) && (
            <PipelineSelect
              placeholder={t('alerts.allPipelines')}
              value={draft.pipeline ?? null}
              error={error('pipeline')}
              onChange={(pipeline) => change({ pipeline })}
            />
          )}
          <SearchedSelect
            label={t('alerts.connector')}
            description={t('alerts.connectorHint')}
            useChoices={useConnectorChoices}
            value={draft.connector ?? null}
            error={error('connector')}
            onChange={(connector) => change({ connector })}
          />
          <TextInput
            label={t('alerts.email')}
            type="email"
            value={draft.email ?? ''}
            error={error('email')}
            onChange={(event) => change({ email: event.currentTarget.value })}
          />
          <Switch
            label={t('alerts.enabled')}
            checked={draft.enabled ?? true}
            onChange={(event) => change({ enabled: event.currentTarget.checked })}
          />
          <Group justify="flex-end">
            <Button
              variant="default"
              onClick={() => {
                forget()
                onClose()
              }}
            >
              {t('common.cancel')}
            </Button>
            <Button type="submit" loading={save.isPending}>
              {t('common.save')}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  )
}
