import { Alert, Button, Group, Text } from '@mantine/core'
import type { RJSFSchema } from '@rjsf/utils'
import { IconHistory } from '@tabler/icons-react'
import { useCallback, useEffect, useRef, useState, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import { browserStorage, readDraft, removeDraft, withoutSecrets, writeDraft, type Draft, type DraftPlace } from '@/lib/drafts'
import { dateAndTime } from '@/lib/format'
import { usePreferences } from '@/lib/preferences'
import { useMe, useWorkspace } from '@/lib/queries/session'

const pauseMilliseconds = 500

interface Options<T> {
  /** What kind of thing the form is of. */
  kind: string
  /** The thing's id, or "new" with what tells new things of the kind apart. */
  thing: string
  /** The version of the server's copy; none for a new thing. */
  base?: string
  /** What the form holds. */
  value: T
  isDirty: boolean
  /** Marks the secrets, which are not kept. Nothing is kept before it is known. */
  schema: RJSFSchema | undefined
  /** Puts a draft into the form, as changes that are not saved. */
  onRestore: (value: T) => void
}

interface Kept {
  /** Stands above the form while changes from before wait for an answer. */
  offer: ReactNode
  /** Whether the browser keeps what is typed. */
  isKept: boolean
  /** Grows when a draft is restored: fields that hold a text of their own begin anew with it. */
  restored: number
  /** To be called when the form was saved. */
  forget: () => void
}

/**
 * Keeps what is typed in a form in the browser as one types, and offers what was left there before. While that waits
 * for an answer it stays as it is, and nothing newer is kept.
 */
export function useDraft<T extends object>({ kind, thing, base, value, isDirty, schema, onRestore }: Options<T>): Kept {
  const user = useMe().data?.username
  const workspace = useWorkspace()?.slug
  const [storage] = useState(browserStorage)
  const [place] = useState<DraftPlace | undefined>(() => (user && workspace ? { user, workspace, kind, thing } : undefined))
  const [offered, setOffered] = useState(() => place && readDraft(storage, place, Date.now(), value))
  const [isWritten, setWritten] = useState(true)
  const [restored, setRestored] = useState(0)
  // Secrets that a restored draft lacks may still be missing.
  const [lacked, setLacked] = useState(false)
  const isSaved = useRef(false)
  const isWanted = isDirty && offered === undefined && place !== undefined && schema !== undefined

  const unkept = useRef<() => void>(undefined)
  useEffect(() => {
    if (!isWanted) return
    const keep = () => {
      unkept.current = undefined
      if (isSaved.current) return
      const kept = withoutSecrets(value, schema)
      setWritten(writeDraft(storage, place, { at: Date.now(), base, ...kept, lacksSecrets: kept.lacksSecrets || lacked }))
    }
    unkept.current = keep
    const timer = setTimeout(keep, pauseMilliseconds)
    return () => clearTimeout(timer)
  }, [isWanted, storage, place, base, value, schema, lacked])

  // What was typed last is kept when the form or the whole page goes.
  useEffect(() => {
    const keepLast = () => unkept.current?.()
    window.addEventListener('pagehide', keepLast)
    return () => {
      window.removeEventListener('pagehide', keepLast)
      keepLast()
    }
  }, [])

  const answer = () => {
    if (place) removeDraft(storage, place)
    setOffered(undefined)
  }
  const forget = useCallback(() => {
    isSaved.current = true
    // Changes that wait for an answer are not those that were saved.
    if (place && !offered) removeDraft(storage, place)
  }, [storage, place, offered])

  return {
    offer: offered && (
      <Offer
        draft={offered}
        isChanged={offered.base !== base}
        isDirty={isDirty}
        onRestore={() => {
          setOffered(undefined)
          setRestored((times) => times + 1)
          setLacked(offered.lacksSecrets)
          onRestore(offered.value as T)
        }}
        onDiscard={answer}
      />
    ),
    isKept: isWanted && isWritten,
    restored,
    forget,
  }
}

interface OfferProps {
  draft: Draft
  /** Whether the server's copy is another than the one that was changed. */
  isChanged: boolean
  isDirty: boolean
  onRestore: () => void
  onDiscard: () => void
}

function Offer({ draft, isChanged, isDirty, onRestore, onDiscard }: OfferProps) {
  const { t, i18n } = useTranslation()
  const { timeZone } = usePreferences()
  const notes = [isChanged && t('draft.changed'), draft.lacksSecrets && t('draft.secrets'), isDirty && t('draft.typed')].filter(Boolean)
  return (
    <Alert variant="default" icon={<IconHistory />} role="status" mb="md">
      <Group justify="space-between" gap="sm">
        <div style={{ flex: '1 1 260px' }}>
          <Text size="sm">{t('draft.offer', { date: dateAndTime(new Date(draft.at), i18n.language, timeZone) })}</Text>
          {notes.length > 0 && (
            <Text size="sm" c="dimmed">
              {notes.join(' ')}
            </Text>
          )}
        </div>
        <Group gap="xs">
          <Button size="xs" variant="default" onClick={onRestore}>
            {t('draft.restore')}
          </Button>
          <Button size="xs" variant="subtle" color="gray" onClick={onDiscard}>
            {t('draft.discard')}
          </Button>
        </Group>
      </Group>
    </Alert>
  )
}
