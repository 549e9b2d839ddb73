import { Alert } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import type { InputChange } from '@/features/pipelines/api/pipelines'
import { useServerTexts } from '@/lib/texts'

/** Whether publishing gives up the position in the input, which is said before. */
export const givesUpPosition = (change: InputChange) => change.starts_anew || change.ends

/** Says that publishing makes the input start anew, and why, or that reading ends; nothing when reading goes on. */
export function StartsAnew({ change }: { change: InputChange }) {
  const { t, i18n } = useTranslation()
  const text = useServerTexts()
  if (change.ends) {
    return (
      <Alert color="yellow" icon={<IconAlertTriangle />} title={t('publish.readingEnds')}>
        {t('publish.readingEndsHint')}
      </Alert>
    )
  }
  if (!change.starts_anew) return null
  const titles = change.causes.map(({ title }) => text(title))
  const fields = new Intl.ListFormat(i18n.language, { type: 'conjunction' }).format(titles)
  return (
    <Alert color="yellow" icon={<IconAlertTriangle />} title={t('publish.startsAnew')}>
      {t('publish.startsAnewBecause', { count: titles.length, fields })}
    </Alert>
  )
}
