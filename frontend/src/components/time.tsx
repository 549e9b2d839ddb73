import { Tooltip } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { ago, moment } from '@/lib/format'
import { usePreferences } from '@/lib/preferences'

/** A moment in the reader's zone with its distance, UTC on hover. */
export function Time({ at }: { at: string | null | undefined }) {
  const { i18n } = useTranslation()
  const { timeZone } = usePreferences()
  if (!at) return '–'
  const date = new Date(at)
  const now = new Date()
  return (
    <Tooltip label={`${date.toISOString().replace('T', ' ').replace('Z', '')} UTC`}>
      <time dateTime={at}>
        {moment(date, now, i18n.language, timeZone)}, {ago(date, now, i18n.language)}
      </time>
    </Tooltip>
  )
}
