import { Text } from '@mantine/core'

import { Time } from '@/components/time'
import type { components } from '@/lib/api/schema'

/** The latest error of something, in a cell of a list. */
export function LastError({ error }: { error: components['schemas']['PipelineError'] }) {
  return (
    <>
      <Text size="sm" lineClamp={1} title={error.message}>
        {error.message}
      </Text>
      <Text size="xs" c="dimmed">
        <Time at={error.at} />
      </Text>
    </>
  )
}
