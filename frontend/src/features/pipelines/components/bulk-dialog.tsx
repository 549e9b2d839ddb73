import { Alert, Button, Group, List, Modal, Progress, Stack, Text } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { toastDone } from '@/components/toasts'
import { useActOnMany, type Action } from '@/features/pipelines/api/pipelines'
import type { Pipeline } from '@/lib/queries/pipelines'

interface Props {
  action: Action
  pipelines: Pipeline[]
  /** Before anything was done. */
  onClose: () => void
  onDone: () => void
}

/** Asks, then pauses or resumes one after the other, and names those that were refused. */
export function BulkDialog({ action, pipelines, onClose, onDone }: Props) {
  const { t } = useTranslation()
  const { progress, start, stop } = useActOnMany(action)
  const ended = (progress?.done ?? 0) + (progress?.refused.length ?? 0)
  const hasEnded = ended === pipelines.length
  const act = async () => {
    const { done, refused } = await start(pipelines)
    if (done) toastDone(t(`pipelines.${action}ManyDone`, { count: done }))
    if (!refused.length) onDone()
  }
  const close = () => {
    stop()
    if (progress) onDone()
    else onClose()
  }
  return (
    <Modal opened onClose={close} title={t(`pipelines.${action}ManyTitle`, { count: pipelines.length })} centered>
      {progress ? (
        <Stack aria-live="polite">
          <Progress value={(ended / pipelines.length) * 100} aria-label={t('pipelines.manyProgressTitle')} />
          <Text size="sm">{t('pipelines.manyProgress', { done: ended, total: pipelines.length })}</Text>
          {progress.refused.length > 0 && (
            <Alert color="red" title={t('pipelines.manyRefused', { count: progress.refused.length })}>
              <List size="sm">
                {progress.refused.map(({ item, why }) => (
                  <List.Item key={item.id}>
                    {item.name}: {why}
                  </List.Item>
                ))}
              </List>
            </Alert>
          )}
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              {t(hasEnded ? 'common.close' : 'pipelines.manyStop')}
            </Button>
          </Group>
        </Stack>
      ) : (
        <>
          <Text size="sm">{t(`pipelines.${action}ManyText`)}</Text>
          <Group justify="flex-end" mt="lg">
            <Button variant="default" onClick={close}>
              {t('common.cancel')}
            </Button>
            <Button data-autofocus onClick={() => void act()}>
              {t(`pipelines.${action}Many`, { count: pipelines.length })}
            </Button>
          </Group>
        </>
      )}
    </Modal>
  )
}
