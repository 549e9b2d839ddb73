import { Code, Text } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { DataTable } from '@/components/data-table'
import type { components } from '@/lib/api/schema'
import { toJson } from '@/lib/json'

type Change = components['schemas']['Change']

/** What changed between two configurations: path, before, after. */
export function ChangeList({ changes }: { changes: Change[] }) {
  const { t } = useTranslation()
  if (!changes.length) {
    return (
      <Text size="sm" c="dimmed">
        {t('changes.none')}
      </Text>
    )
  }
  return (
    <DataTable
      label={t('changes.title')}
      rows={changes}
      keyOf={({ path }) => path}
      columns={[
        { name: 'path', title: t('changes.field'), cell: ({ path }) => path, isLead: true },
        { name: 'before', title: t('changes.before'), cell: ({ before }) => <Value value={before} />, isWide: true },
        { name: 'after', title: t('changes.after'), cell: ({ after }) => <Value value={after} />, isWide: true },
      ]}
    />
  )
}

function Value({ value }: { value: unknown }) {
  if (value === null || value === undefined) return '–'
  const text = typeof value === 'string' ? value : toJson(value, 1)
  return (
    <Code style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }} bg="transparent" p={0}>
      {text}
    </Code>
  )
}
