import { Button, Group, Modal, Text, type ButtonProps } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

interface Props extends ButtonProps {
  title: string
  text: string
  onConfirm: () => void
  children: ReactNode
}

/** A button whose action is confirmed first. */
export function ConfirmButton({ title, text, onConfirm, children, ...button }: Props) {
  const { t } = useTranslation()
  const [opened, { open, close }] = useDisclosure()
  return (
    <>
      <Button color="red" variant="default" {...button} onClick={open}>
        {children}
      </Button>
      <Modal opened={opened} onClose={close} title={title} centered>
        <Text size="sm">{text}</Text>
        <Group justify="flex-end" mt="lg">
          <Button variant="default" onClick={close}>
            {t('common.cancel')}
          </Button>
          <Button
            color="red"
            onClick={() => {
              close()
              onConfirm()
            }}
          >
            {children}
          </Button>
        </Group>
      </Modal>
    </>
  )
}
