import { Button, Group, Modal, Text, TextInput } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { toastDone, toastFailed } from '@/components/toasts'
import { useResetCollection, type CollectionDetail } from '@/features/collections/api/collections'

/** Empties a collection, once its name has been typed. */
export function ResetButton({ collection }: { collection: CollectionDetail }) {
  const { t } = useTranslation()
  const [opened, { open, close }] = useDisclosure()
  const [typed, setTyped] = useState('')
  const reset = useResetCollection()
  const show = () => {
    setTyped('')
    open()
  }
  const confirm = () =>
    reset.mutate(collection.id, {
      onSuccess: () => {
        close()
        toastDone(t('collections.resetDone'))
      },
      onError: toastFailed,
    })
  const documents = t('collections.resetCount', { count: collection.documents })
  return (
    <>
      <Button color="red" variant="default" onClick={show}>
        {t('collections.reset')}
      </Button>
      <Modal opened={opened} onClose={close} title={t('collections.resetTitle')} centered>
        <form
          onSubmit={(event) => {
            event.preventDefault()
            if (typed === collection.name) confirm()
          }}
        >
          <Text size="sm">
            {documents} {t('collections.resetText')}
          </Text>
          <TextInput
            mt="md"
            data-autofocus
            label={t('collections.resetType', { name: collection.name })}
            value={typed}
            onChange={(event) => setTyped(event.currentTarget.value)}
          />
          <Group justify="flex-end" mt="lg">
            <Button variant="default" onClick={close}>
              {t('common.cancel')}
            </Button>
            <Button type="submit" color="red" disabled={typed !== collection.name} loading={reset.isPending}>
              {t('collections.reset')}
            </Button>
          </Group>
        </form>
      </Modal>
    </>
  )
}
