import { Button, Group, SegmentedControl, SimpleGrid } from '@mantine/core'
import { IconDownload } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'
import { useSearchParams } from 'react-router'

import { DataTable } from '@/components/data-table'
import { Figure } from '@/components/figure'
import { NameAndPart } from '@/components/name-and-part'
import { Page } from '@/components/page'
import { PipelineSelect } from '@/components/pipeline-select'
import { Empty, Loaded } from '@/components/states'
import { exportAddress, useUsage, type Step, type Usage } from '@/features/usage/api/usage'
import { bytes, count } from '@/lib/format'

const steps: Step[] = ['minute', 'hour', 'day']

/** How much was delivered, where to and when: the number that is billed. */
export function UsagePage() {
  const { t } = useTranslation()
  const [parameters, setParameters] = useSearchParams()
  const step = steps.find((known) => known === parameters.get('step')) ?? 'day'
  const pipeline = parameters.get('pipeline')
  const usage = useUsage(step, pipeline)
  const set = (name: string, value: string | null) =>
    setParameters(
      (before) => {
        const next = new URLSearchParams(before)
        if (value) next.set(name, value)
        else next.delete(name)
        return next
      },
      { replace: true },
    )
  return (
    <Page
      purpose={t('usage.purpose')}
      action={
        <Button
          component="a"
          href={exportAddress(step, pipeline)}
          variant="default"
          leftSection={<IconDownload size={16} />}
        >
          {t('usage.export')}
        </Button>
      }
    >
      <Group mb="md" align="flex-end">
        <SegmentedControl
          aria-label={t('usage.step')}
          value={step}
          onChange={(value) => set('step', value)}
          data={steps.map((value) => ({ value, label: t(`usage.by.${value}`) }))}
        />
        <PipelineSelect value={pipeline} onChange={(value) => set('pipeline', value)} />
      </Group>
      <Loaded query={usage}>
        {(rows) =>
          rows.length ? <Rows rows={rows} step={step} /> : <Empty title={t('usage.empty')} hint={t('usage.emptyHint')} />
        }
      </Loaded>
    </Page>
  )
}

function Rows({ rows, step }: { rows: Usage[]; step: Step }) {
  const { t, i18n } = useTranslation()
  const sum = (field: 'deliveries' | 'bytes') => rows.reduce((total, row) => total + row[field], 0)
  const period = new Intl.DateTimeFormat(i18n.language, {
    dateStyle: 'medium',
    timeStyle: step === 'day' ? undefined : 'short',
    timeZone: 'UTC',
  })
  const figures: [string, string][] = [
    [t('usage.deliveries'), count(sum('deliveries'), i18n.language)],
    [t('usage.volume'), bytes(sum('bytes'), i18n.language)],
  ]
  return (
    <>
      <SimpleGrid cols={{ base: 2, md: 4 }} mb="lg">
        {figures.map(([label, value]) => (
          <Figure key={label} label={label} value={value} />
        ))}
      </SimpleGrid>
      <DataTable
        label={t('usage.title')}
        isFramed
        rows={[...rows].reverse()}
        keyOf={(row) => `${row.period}${row.pipeline}${row.output}`}
        columns={[
          {
            name: 'pipeline',
            title: t('deliveries.pipeline'),
            cell: (row) => <NameAndPart name={row.pipeline_name || row.pipeline} part={row.output} />,
            sortBy: (row) => row.pipeline_name || row.pipeline,
            isLead: true,
          },
          {
            name: 'period',
            title: t('usage.period'),
            cell: (row) => period.format(new Date(row.period)),
            sortBy: (row) => row.period,
            isStill: true,
          },
          {
            name: 'deliveries',
            title: t('usage.deliveries'),
            cell: ({ deliveries }) => count(deliveries, i18n.language),
            sortBy: ({ deliveries }) => deliveries,
            isNumber: true,
          },
          {
            name: 'volume',
            title: t('usage.volume'),
            cell: (row) => bytes(row.bytes, i18n.language),
            sortBy: (row) => row.bytes,
            isNumber: true,
            isStill: true,
          },
        ]}
      />
    </>
  )
}
