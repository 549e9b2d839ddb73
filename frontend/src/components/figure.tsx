import { Card, Text } from '@mantine/core'

/** One number that answers a page's question. */
export function Figure({ label, value, note }: { label: string; value: string; note?: string }) {
  return (
    <Card withBorder padding="md" h="100%">
      <Text size="sm" c="dimmed">
        {label}
      </Text>
      <Text size="xl" fw={600} data-figure={label}>
        {value}
      </Text>
      {note && (
        <Text size="xs" c="dimmed">
          {note}
        </Text>
      )}
    </Card>
  )
}
