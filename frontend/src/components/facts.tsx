import { Table } from '@mantine/core'
import type { ReactNode } from 'react'

export type Fact = [label: string, value: ReactNode]

/** What is known of one record, beside or below its list. */
export function Facts({ facts }: { facts: Fact[] }) {
  return (
    <Table variant="vertical" layout="fixed">
      <Table.Tbody>
        {facts.map(([label, value]) => (
          <Table.Tr key={label}>
            <Table.Th w={150}>{label}</Table.Th>
            <Table.Td style={{ overflowWrap: 'anywhere' }}>{value}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  )
}
