import { Card, Group, SegmentedControl, Title } from '@mantine/core'
import { useState, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

/** Seconds that are live, or so many hours. */
type Range = 'live' | '1' | '24' | '720'

interface Props<R extends Range> {
  /** The first one is shown at first. */
  ranges: readonly [R, ...R[]]
  /** The chart of a range. */
  children: (range: R) => ReactNode
}

/** Messages over time, in a range that the user chooses. */
export function ThroughputCard<R extends Range>({ ranges, children }: Props<R>) {
  const { t } = useTranslation()
  const [range, setRange] = useState<R>(ranges[0])
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h5">
          {t('pipelines.throughput')}
        </Title>
        <SegmentedControl
          size="xs"
          aria-label={t('pipelines.range')}
          value={range}
          onChange={setRange}
          data={ranges.map((value) => ({ value, label: t(`pipelines.range${value}`) }))}
        />
      </Group>
      {children(range)}
    </Card>
  )
}
