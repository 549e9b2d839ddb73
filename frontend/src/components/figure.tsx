import { Card, Text } from '@mantine/core'

import { useLive } from '@/lib/live'

interface Props {
  label: string
  value: string
  note?: string
  /** Whether it comes from the live socket: grey while that is silent. */
  isLive?: boolean
}

/** One number that answers a page's question. */
export function Figure({ label, value, note, isLive = false }: Props) {
  return (
    <Card withBorder padding="md" h="100%">
      <Text size="sm" c="dimmed">
        {label}
      </Text>
      {isLive ? (
        <LiveValue label={label} value={value} />
      ) : (
        <Text size="xl" fw={600} data-figure={label}>
          {value}
        </Text>
      )}
      {note && (
        <Text size="xs" c="dimmed">
          {note}
        </Text>
      )}
    </Card>
  )
}

function LiveValue({ label, value }: { label: string; value: string }) {
  const { state } = useLive()
  return (
    <Text size="xl" fw={600} data-figure={label} c={state === 'live' ? undefined : 'dimmed'}>
      {value}
    </Text>
  )
}
