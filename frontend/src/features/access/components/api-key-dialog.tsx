import { Alert, Button, Checkbox, Group, Modal, Stack, Text, TextInput } from '@mantine/core'
import { useState, type SubmitEvent } from 'react'
import { useTranslation } from 'react-i18next'

import { Copyable } from '@/components/copyable'
import { scopes, useCreateApiKey, type Scope } from '@/features/access/api/access'
import { fieldErrors } from '@/lib/api/problem'

/** Asks for a key's name and rights, then shows the key, once. */
export function ApiKeyDialog({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation()
  const create = useCreateApiKey()
  const [name, setName] = useState('')
  const [chosen, setChosen] = useState<Scope[]>(['ingest'])
  const [expires, setExpires] = useState('')
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    const expiresAt = expires ? new Date(`${expires}T23:59:59`).toISOString() : null
    create.mutate({ name, scopes: chosen, expires_at: expiresAt })
  }
  return (
    <Modal opened onClose={onClose} title={t('access.createKey')} centered closeOnClickOutside={!create.data}>
      {create.data?.key ? (
        <Stack>
          <Alert color="yellow">{t('access.shownOnce')}</Alert>
          <Copyable value={create.data.key} />
          <Group justify="flex-end">
            <Button onClick={onClose}>{t('access.done')}</Button>
          </Group>
        </Stack>
      ) : (
        <form onSubmit={submit}>
          <Stack>
            <TextInput
              label={t('common.name')}
              required
              value={name}
              error={fieldErrors(create.error, 'name')}
              onChange={(event) => setName(event.currentTarget.value)}
            />
            <Checkbox.Group
              label={t('access.mayDo')}
              value={chosen}
              error={fieldErrors(create.error, 'scopes')}
              onChange={(values) => setChosen(values)}
            >
              <Stack gap="xs" mt="xs">
                {scopes.map((scope) => (
                  <Checkbox key={scope} value={scope} label={t(`access.scopes.${scope}`)} />
                ))}
              </Stack>
            </Checkbox.Group>
            <TextInput
              type="date"
              label={t('access.expires')}
              description={t('access.expiresHint')}
              value={expires}
              error={fieldErrors(create.error, 'expires_at')}
              onChange={(event) => setExpires(event.currentTarget.value)}
            />
            {create.error && fieldErrors(create.error, '') && (
              <Text size="sm" c="red">
                {fieldErrors(create.error, '')}
              </Text>
            )}
            <Group justify="flex-end">
              <Button variant="default" onClick={onClose}>
                {t('common.cancel')}
              </Button>
              <Button type="submit" loading={create.isPending}>
                {t('access.createKey')}
              </Button>
            </Group>
          </Stack>
        </form>
      )}
    </Modal>
  )
}
