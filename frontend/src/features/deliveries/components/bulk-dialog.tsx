import { Button, Checkbox, Group, List, Modal, Progress, Radio, Stack, Text, TextInput } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { Loaded } from '@/components/states'
import { toastDone, toastFailed } from '@/components/toasts'
import { useDeadLetterSummary, useDiscard, useRedrive, useSelectionPreview, type DeadLetterGroup } from '@/features/deliveries/api/deliveries'
import { count } from '@/lib/format'
import { reasonLabel } from '@/lib/reasons'
import { useConditions, type Condition } from '@/lib/queries/conditions'
import { useSetBreaker } from '@/lib/queries/outputs'
import { usePipelineName } from '@/lib/queries/pipelines'
import type { Filter } from '@/lib/use-filter'

export type BulkAction = 'redrive' | 'discard'

interface Props {
  action: BulkAction
  filter: Filter
  onClose: () => void
  onDone: () => void
}

/** Shows what a redrive or discard reaches before it is done. */
export function BulkDialog({ action, filter, onClose, onDone }: Props) {
  const { t, i18n } = useTranslation()
  const preview = useSelectionPreview(filter)
  const nameOf = usePipelineName()
  const redrive = useRedrive()
  const discard = useDiscard()
  const [version, setVersion] = useState<'original' | 'current'>('original')
  const [reason, setReason] = useState('')
  const conditions = useConditions()
  const breaker = useSetBreaker()
  const [closes, setCloses] = useState(true)
  const [sent, setSent] = useState<number>()
  const written = (value: number) => count(value, i18n.language)
  // An open breaker would hold everything back again.
  const held = openBreakers(preview.data?.groups ?? [], conditions.data)
  const act = async () => {
    try {
      if (action === 'discard') {
        const { count: reached } = await discard.mutateAsync({ filter, reason })
        toastDone(t('deadLetters.discardDone', { count: reached }))
        onDone()
        return
      }
      if (closes) await Promise.all(held.map((output) => breaker.mutateAsync({ ...output, open: false })))
      setSent((await redrive.mutateAsync({ filter, version })).count)
    } catch (error) {
      toastFailed(error)
    }
  }
  if (sent !== undefined) {
    return (
      <Modal opened onClose={onDone} title={t('deadLetters.progressTitle')} centered size="lg">
        <Progressing filter={filter} total={sent} onDone={onDone} />
      </Modal>
    )
  }
  return (
    <Modal opened onClose={onClose} title={t(`deadLetters.${action}Title`)} centered size="lg">
      <Loaded query={preview}>
        {(reach) => (
          <Stack>
            <Text data-preview={reach.count}>
              {t(`deadLetters.${action}Preview`, { count: reach.count, outputs: reach.outputs })}
            </Text>
            <List size="sm">
              {reach.groups.map((group) => (
                <List.Item key={`${group.pipeline}/${group.output}/${group.reason}`}>
                  {written(group.count)} · {nameOf(group.pipeline)} · {group.output || '–'} ·{' '}
                  {reasonLabel(t, group.reason)}
                </List.Item>
              ))}
            </List>
            {action === 'redrive' ? (
              <>
                <Radio.Group
                  label={t('deadLetters.versionLabel')}
                  value={version}
                  onChange={(value) => setVersion(value)}
                >
                  <Stack gap="xs" mt="xs">
                    <Radio value="original" label={t('deadLetters.versionOriginal')} />
                    <Radio value="current" label={t('deadLetters.versionCurrent')} />
                  </Stack>
                </Radio.Group>
                {held.length > 0 && (
                  <Checkbox
                    label={t('deadLetters.closeBreakers', { outputs: held.map(({ output }) => output).join(', ') })}
                    description={t('deadLetters.closeBreakersHint')}
                    checked={closes}
                    onChange={(event) => setCloses(event.currentTarget.checked)}
                  />
                )}
                <Text size="sm" c="dimmed">
                  {t('deadLetters.redriveHint')}
                </Text>
              </>
            ) : (
              <TextInput
                label={t('deadLetters.why')}
                required
                value={reason}
                onChange={(event) => setReason(event.currentTarget.value)}
              />
            )}
            <Group justify="flex-end">
              <Button variant="default" onClick={onClose}>
                {t('common.cancel')}
              </Button>
              <Button
                color={action === 'discard' ? 'red' : undefined}
                disabled={!reach.count || (action === 'discard' && !reason.trim())}
                loading={redrive.isPending || discard.isPending || breaker.isPending}
                onClick={() => void act()}
              >
                {t(`deadLetters.${action}`, { count: reach.count })}
              </Button>
            </Group>
          </Stack>
        )}
      </Loaded>
    </Modal>
  )
}

/** The outputs among these whose circuit breakers are not closed. */
function openBreakers(groups: DeadLetterGroup[], conditions: Map<string, Condition> | undefined) {
  const outputs = new Set(groups.map(({ pipeline, output }) => `${pipeline} ${output}`))
  return [...(conditions?.values() ?? [])].flatMap(({ pipeline, breakers }) =>
    breakers.filter(({ output }) => outputs.has(`${pipeline} ${output}`)).map(({ output }) => ({ pipeline, output })),
  )
}

/** How far a redrive is: what is delivered, what is on its way, and what waits again. */
function Progressing({ filter, total, onDone }: { filter: Filter; total: number; onDone: () => void }) {
  const { t } = useTranslation()
  const sumOf = (groups: DeadLetterGroup[] | undefined) => groups?.reduce((sum, group) => sum + group.count, 0)
  const moving = sumOf(useDeadLetterSummary({ ...filter, state: 'redelivering' }).data)
  const waiting = sumOf(useDeadLetterSummary({ ...filter, state: 'waiting' }).data)
  const done = Math.max(total - (moving ?? total) - (waiting ?? 0), 0)
  return (
    <Stack aria-live="polite">
      <Progress value={(done / Math.max(total, 1)) * 100} aria-label={t('deadLetters.progressTitle')} />
      <Text size="sm">
        {t('deadLetters.progress', { done, total, moving: moving ?? total, waiting: waiting ?? 0 })}
      </Text>
      <Group justify="flex-end">
        <Button onClick={onDone}>{t('deadLetters.progressClose')}</Button>
      </Group>
    </Stack>
  )
}
