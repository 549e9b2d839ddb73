import { Stack, Text } from '@mantine/core'

/** A name, and below it what of it is meant, such as an output of a pipeline. */
export function NameAndPart({ name, part }: { name: string; part: string }) {
  return (
    <Stack gap={0}>
      <span>{name}</span>
      <Text size="xs" c="dimmed">
        {part}
      </Text>
    </Stack>
  )
}
