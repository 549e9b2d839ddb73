import { Button, Group, List, Modal, Radio, Stack, Text, TextInput } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { Loaded } from '@/components/states'
import { toastDone, toastFailed } from '@/components/toasts'
import { useDiscard, useRedrive, useSelectionPreview } from '@/features/deliveries/api/deliveries'
import { count } from '@/lib/format'
import { reasonLabel } from '@/lib/reasons'
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
  const written = (value: number) => count(value, i18n.language)
  const finish = ({ count: reached }: { count: number }) => {
    toastDone(t(`deadLetters.${action}Done`, { count: written(reached) }))
    onDone()
  }
  const act = () =>
    action === 'redrive'
      ? redrive.mutate({ filter, version }, { onSuccess: finish, onError: toastFailed })
      : discard.mutate({ filter, reason }, { onSuccess: finish, onError: toastFailed })
  return (
    <Modal opened onClose={onClose} title={t(`deadLetters.${action}Title`)} centered size="lg">
      <Loaded query={preview}>
        {(reach) => (
          <Stack>
            <Text data-preview={reach.count}>
              {t(`deadLetters.${action}Preview`, { count: written(reach.count), outputs: written(reach.outputs) })}
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
                loading={redrive.isPending || discard.isPending}
                onClick={act}
              >
                {t(`deadLetters.${action}`, { count: written(reach.count) })}
              </Button>
            </Group>
          </Stack>
        )}
      </Loaded>
    </Modal>
  )
}
