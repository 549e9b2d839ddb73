import { Alert, Box, Button, Code, CopyButton, Group, Stack, Text, Textarea } from '@mantine/core'
import { IconCheck, IconCircleCheck, IconCopy, IconKey, IconSend } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { toastFailed } from '@/components/toasts'
import { fieldErrors } from '@/lib/api/problem'
import { curlOf } from '@/lib/curl'
import { useCreateIngestKey, useSendMessage } from '@/lib/queries/sending'
import { includes, useRole } from '@/lib/queries/session'

const sample = '{"order": {"id": "A-1", "amount": 19.9}, "user": {"name": "Ana", "country": "BR"}}'

interface Props {
  pipeline: string
  name: string
  url: string
}

/** The command that sends a message, with a copy button, and a button that sends it from here. */
export function SendSample({ pipeline, name, url }: Props) {
  const { t } = useTranslation()
  const [body, setBody] = useState(sample)
  const [key, setKey] = useState('')
  const send = useSendMessage(pipeline)
  const role = useRole()
  const command = curlOf(url, key || t('sample.keyPlaceholder'), body)
  return (
    <Stack gap="sm">
      <Textarea
        label={t('sample.body')}
        autosize
        minRows={2}
        maxRows={12}
        value={body}
        error={fieldErrors(send.error, 'body')}
        styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 'var(--mantine-font-size-xs)' } }}
        onChange={(event) => setBody(event.currentTarget.value)}
      />
      {includes(role, 'editor') && (
        <Group gap="sm">
          <Button
            leftSection={<IconSend size={16} />}
            loading={send.isPending}
            onClick={() => send.mutate(body, { onError: (error) => !fieldErrors(error, 'body') && toastFailed(error) })}
          >
            {t('sample.send')}
          </Button>
          <Text size="sm" c="dimmed">
            {t('sample.orByCommand')}
          </Text>
        </Group>
      )}
      {send.data && (
        <Alert color="green" icon={<IconCircleCheck />} role="status">
          {t('sample.sent')} <Code>{send.data.message_id}</Code>
        </Alert>
      )}
      <Box pos="relative">
        <Code block pr={52} style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }}>
          {command}
        </Code>
        <Box pos="absolute" top={6} right={6}>
          <Copy value={command} />
        </Box>
      </Box>
      {includes(role, 'admin') && !key && <NewKey name={name} onCreate={setKey} />}
      {key && (
        <Text size="sm" c="dimmed">
          {t('sample.keyShownOnce')}
        </Text>
      )}
    </Stack>
  )
}

function Copy({ value }: { value: string }) {
  const { t } = useTranslation()
  return (
    <CopyButton value={value}>
      {({ copied, copy }) => (
        <Button
          size="compact-xs"
          variant="default"
          aria-label={t('sample.copyCommand')}
          leftSection={copied ? <IconCheck size={14} /> : <IconCopy size={14} />}
          onClick={copy}
        >
          {copied ? t('common.copied') : t('common.copy')}
        </Button>
      )}
    </CopyButton>
  )
}

function NewKey({ name, onCreate }: { name: string; onCreate: (key: string) => void }) {
  const { t } = useTranslation()
  const create = useCreateIngestKey()
  return (
    <Group>
      <Button
        size="xs"
        variant="default"
        leftSection={<IconKey size={14} />}
        loading={create.isPending}
        onClick={() => create.mutate(name, { onSuccess: ({ key }) => onCreate(key ?? ''), onError: toastFailed })}
      >
        {t('sample.createKey')}
      </Button>
    </Group>
  )
}
