import { Tooltip } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { ago, dateAndTime } from '@/lib/format'
import { usePreferences } from '@/lib/preferences'

/** A moment in the reader's zone with its distance, UTC on hover. */
export function Time({ at }: { at: string | null | undefined }) {
  const { i18n } = useTranslation()
  const { timeZone } = usePreferences()
  if (!at) return '–'
  const date = new Date(at)
  return (
    <Tooltip label={date.toISOString()}>
      <time dateTime={at}>
        {dateAndTime(date, i18n.language, timeZone)}, {ago(date, new Date(), i18n.language)}
      </time>
    </Tooltip>
  )
}
