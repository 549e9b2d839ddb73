import { Code, Text } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { DataTable } from '@/components/data-table'
import type { components } from '@/lib/api/schema'
import { toJson } from '@/lib/json'

type Change = components['schemas']['Change']

interface Props {
  changes: Change[]
  /** What a field is called; by its path otherwise. */
  nameOf?: (path: string) => string
  /** How a value is shown; as it is, or as JSON otherwise. */
  textOf?: (value: unknown) => string
}

/** What changed between two configurations: field, before, after. */
export function ChangeList({ changes, nameOf = (path) => path, textOf = plain }: Props) {
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
        { name: 'path', title: t('changes.field'), cell: ({ path }) => nameOf(path), isLead: true },
        { name: 'before', title: t('changes.before'), cell: ({ before }) => <Value value={before} textOf={textOf} />, isWide: true },
        { name: 'after', title: t('changes.after'), cell: ({ after }) => <Value value={after} textOf={textOf} />, isWide: true },
      ]}
    />
  )
}

/** A value as it is written in a configuration. */
export const plain = (value: unknown) => (typeof value === 'string' ? value : toJson(value, 1))

function Value({ value, textOf }: { value: unknown; textOf: (value: unknown) => string }) {
  if (value === null || value === undefined) return '–'
  return (
    <Code style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }} bg="transparent" p={0}>
      {textOf(value)}
    </Code>
  )
}
