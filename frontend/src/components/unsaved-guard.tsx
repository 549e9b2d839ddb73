import { Button, Group, Modal, Text } from '@mantine/core'
import { useEffect, useRef } from 'react'
import { useTranslation } from 'react-i18next'
import { useBlocker } from 'react-router'

/**
 * Asks before typed work is lost, by a link, the browser's buttons or by closing the page. Returns a function to be
 * called before leaving on purpose. `isKept` says whether the browser keeps the work as a draft.
 */
export function useUnsaved(isDirty: boolean, isKept = false) {
  const mayLeave = useRef(false)
  const blocker = useBlocker(
    ({ currentLocation, nextLocation }) => isDirty && !mayLeave.current && currentLocation.pathname !== nextLocation.pathname,
  )
  useEffect(() => {
    if (!isDirty) return
    const warn = (event: BeforeUnloadEvent) => event.preventDefault()
    window.addEventListener('beforeunload', warn)
    return () => window.removeEventListener('beforeunload', warn)
  }, [isDirty])
  return {
    release: () => {
      mayLeave.current = true
    },
    guard: <Question isKept={isKept} opened={blocker.state === 'blocked'} onStay={() => blocker.reset?.()} onLeave={() => blocker.proceed?.()} />,
  }
}

function Question({ isKept, opened, onStay, onLeave }: { isKept: boolean; opened: boolean; onStay: () => void; onLeave: () => void }) {
  const { t } = useTranslation()
  return (
    <Modal opened={opened} onClose={onStay} title={t('unsaved.title')} centered>
      <Text size="sm">{t(isKept ? 'unsaved.kept' : 'unsaved.text')}</Text>
      <Group justify="flex-end" mt="lg">
        <Button variant="default" color="red" onClick={onLeave}>
          {t('unsaved.leave')}
        </Button>
        <Button data-autofocus onClick={onStay}>
          {t('unsaved.stay')}
        </Button>
      </Group>
    </Modal>
  )
}
