import { Badge } from '@mantine/core'
import { IconAlertTriangle, IconArchive, IconCircleCheck, IconClock, IconLoader } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import type { Export } from '@/features/exports/api/exports'

export const states = ['staged', 'writing', 'committed', 'failed', 'aborted'] as const

const looks = {
  staged: { color: 'gray', icon: IconClock },
  writing: { color: 'gray', icon: IconLoader },
  committed: { color: 'green', icon: IconCircleCheck },
  failed: { color: 'red', icon: IconAlertTriangle },
  aborted: { color: 'gray', icon: IconArchive },
}

/** How far a file is. One that failed and is tried again by itself waits; it needs nobody. */
export function ExportState({ file }: { file: Pick<Export, 'state' | 'due_at'> }) {
  const { t } = useTranslation()
  const { color, icon: Icon } = looks[file.state]
  const waits = file.state === 'failed' && file.due_at
  return (
    <Badge
      color={waits ? 'yellow' : color}
      variant="light"
      tt="none"
      miw="max-content"
      leftSection={<Icon size={12} aria-hidden />}
    >
      {t(waits ? 'exports.retrying' : `exports.state.${file.state}`)}
    </Badge>
  )
}
