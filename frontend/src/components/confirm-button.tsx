import { Button, Group, Modal, Text, TextInput, type ButtonProps } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useState, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

interface Props extends ButtonProps {
  title: string
  text: string
  /** Why it cannot be done, if anything hinders it: asked before the question is. */
  hindrance?: () => Promise<string | undefined>
  /** What has to be typed first, such as a name: for what cannot be undone. */
  typed?: string
  onConfirm: () => void
  children: ReactNode
}

/** A button whose action is confirmed first. */
export function ConfirmButton({ title, text, hindrance, typed, onConfirm, children, ...button }: Props) {
  const { t } = useTranslation()
  const [opened, { open, close }] = useDisclosure()
  const [hindered, setHindered] = useState<string>()
  const [entered, setEntered] = useState('')
  const ask = async () => {
    setEntered('')
    // The server has the last word: without an answer the question is asked.
    if (hindrance) setHindered(await hindrance().catch(() => undefined))
    open()
  }
  return (
    <>
      <Button color="red" variant="default" {...button} onClick={() => void ask()}>
        {children}
      </Button>
      <Modal opened={opened} onClose={close} title={title} centered>
        <Text size="sm">{hindered ?? text}</Text>
        {typed && !hindered && (
          <TextInput
            mt="md"
            data-autofocus
            autoComplete="off"
            label={t('common.typeToConfirm', { text: typed })}
            value={entered}
            onChange={(event) => setEntered(event.currentTarget.value)}
          />
        )}
        <Group justify="flex-end" mt="lg">
          <Button variant="default" onClick={close}>
            {t(hindered ? 'common.close' : 'common.cancel')}
          </Button>
          {!hindered && (
            <Button
              color="red"
              disabled={typed !== undefined && entered.trim() !== typed}
              onClick={() => {
                close()
                onConfirm()
              }}
            >
              {children}
            </Button>
          )}
        </Group>
      </Modal>
    </>
  )
}
