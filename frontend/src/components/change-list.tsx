import { Code, Table, Text } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import type { components } from '@/lib/api/schema'

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
    <Table.ScrollContainer minWidth={420}>
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('changes.field')}</Table.Th>
            <Table.Th>{t('changes.before')}</Table.Th>
            <Table.Th>{t('changes.after')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {changes.map(({ path, before, after }) => (
            <Table.Tr key={path}>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>{path}</Table.Td>
              <Table.Td>
                <Value value={before} />
              </Table.Td>
              <Table.Td>
                <Value value={after} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  )
}

function Value({ value }: { value: unknown }) {
  if (value === null || value === undefined) return '–'
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 1)
  return (
    <Code style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }} bg="transparent" p={0}>
      {text}
    </Code>
  )
}
