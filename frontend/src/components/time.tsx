import { Tooltip } from '@mantine/core'
import { useSyncExternalStore } from 'react'
import { useTranslation } from 'react-i18next'

import { ago, moment } from '@/lib/format'
import { usePreferences } from '@/lib/preferences'
import { onTick } from '@/lib/ticks'

/** How long ago a moment was, which grows. */
export function useAgo(at: string | null | undefined): string {
  const { i18n } = useTranslation()
  return useSyncExternalStore(onTick, () => (at ? ago(new Date(at), new Date(), i18n.language) : '–'))
}

/** A moment in the reader's zone with its distance, which grows, UTC on hover. */
export function Time({ at }: { at: string | null | undefined }) {
  const { i18n } = useTranslation()
  const { timeZone } = usePreferences()
  const written = () => {
    if (!at) return '–'
    const [date, now] = [new Date(at), new Date()]
    return `${moment(date, now, i18n.language, timeZone)}, ${ago(date, now, i18n.language)}`
  }
  const text = useSyncExternalStore(onTick, written)
  if (!at) return text
  return (
    <Tooltip label={`${new Date(at).toISOString().replace('T', ' ').replace('Z', '')} UTC`}>
      <time dateTime={at}>{text}</time>
    </Tooltip>
  )
}
