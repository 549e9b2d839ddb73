import { Alert, Button, Group, Modal, Stack, Text, Textarea } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { Loaded } from '@/components/states'
import { toastDone } from '@/components/toasts'
import { useInputChange, usePublish } from '@/features/pipelines/api/pipelines'
import { sentence } from '@/lib/api/problem'
import type { Pipeline } from '@/lib/queries/pipelines'

import { StartsAnew } from './starts-anew'
import { VersionChanges } from './version-changes'

interface Props {
  pipeline: Pipeline
  opened: boolean
  onClose: () => void
}

/** Shows what publishing changes, and takes a note for those who read the versions later. */
export function PublishDialog({ pipeline, opened, onClose }: Props) {
  const { t } = useTranslation()
  return (
    <Modal opened={opened} onClose={onClose} size="xl" title={t('publish.title', { version: pipeline.version, name: pipeline.name })}>
      <Content pipeline={pipeline} onClose={onClose} />
    </Modal>
  )
}

function Content({ pipeline, onClose }: Omit<Props, 'opened'>) {
  const { t } = useTranslation()
  const { version, published_version: published } = pipeline
  const [note, setNote] = useState('')
  const publish = usePublish(pipeline.id)
  const submit = () =>
    publish.mutate(note.trim(), {
      onSuccess: ({ provisioning }) => {
        if (!provisioning) toastDone(t('pipelines.published', { version }))
        onClose()
      },
    })
  return (
    <Stack gap="md">
      {published === null ? (
        <Text size="sm">{t('publish.first')}</Text>
      ) : (
        <>
          <Restart pipeline={pipeline} />
          <Text size="sm">{t('publish.changes', { version: published })}</Text>
          <VersionChanges pipeline={pipeline} number={version} since={published} />
        </>
      )}
      <Textarea
        data-autofocus
        label={t('publish.note')}
        description={t('publish.noteHint')}
        autosize
        maxLength={500}
        value={note}
        onChange={(event) => setNote(event.currentTarget.value)}
      />
      {publish.error && (
        <Alert color="red" icon={<IconAlertTriangle />} role="alert" title={t('publish.failed')}>
          {sentence(publish.error)}
        </Alert>
      )}
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose}>
          {t('common.cancel')}
        </Button>
        <Button loading={publish.isPending} onClick={submit}>
          {t('publish.publish')}
        </Button>
      </Group>
    </Stack>
  )
}

function Restart({ pipeline }: { pipeline: Pipeline }) {
  const change = useInputChange(pipeline.id, pipeline.version)
  return <Loaded query={change}>{(known) => <StartsAnew change={known} />}</Loaded>
}
