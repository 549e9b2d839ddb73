import { Button, Card, Title } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { DataTable } from '@/components/data-table'
import { NameAndPart } from '@/components/name-and-part'
import { Time } from '@/components/time'
import { toastDone, toastFailed } from '@/components/toasts'
import { useCloseExport, type Waiting } from '@/features/exports/api/exports'
import { bytes, count } from '@/lib/format'
import { usePipelineName } from '@/lib/queries/pipelines'
import { includes, useRole } from '@/lib/queries/session'

/** Messages that are staged and in no file yet. */
export function WaitingTable({ groups }: { groups: Waiting[] }) {
  const { t, i18n } = useTranslation()
  const nameOf = usePipelineName()
  const role = useRole()
  const close = useCloseExport()
  const make = ({ pipeline, output }: Waiting) =>
    close.mutate(
      { pipeline, output },
      { onSuccess: (files) => toastDone(t('exports.closed', { count: files.length })), onError: toastFailed },
    )
  return (
    <Card withBorder mb="lg">
      <Title order={2} size="h5" mb="sm">
        {t('exports.waiting')}
      </Title>
      <DataTable
        label={t('exports.waiting')}
        rows={groups}
        keyOf={({ pipeline, output, version }) => `${pipeline}/${output}/${version}`}
        actions={(group) =>
          includes(role, 'operator') && (
            <Button size="compact-xs" variant="default" loading={close.isPending} onClick={() => make(group)}>
              {t('exports.close')}
            </Button>
          )
        }
        columns={[
          {
            name: 'pipeline',
            title: t('deliveries.pipeline'),
            cell: ({ pipeline, output, version }) => (
              <NameAndPart name={nameOf(pipeline)} part={t('exports.outputAndVersion', { output, version })} />
            ),
            isLead: true,
          },
          { name: 'messages', title: t('exports.messages'), cell: ({ messages }) => count(messages, i18n.language), isNumber: true },
          { name: 'bytes', title: t('exports.bodies'), cell: (group) => bytes(group.bytes, i18n.language), isNumber: true, isStill: true },
          { name: 'oldest', title: t('exports.oldest'), cell: ({ oldest }) => <Time at={oldest} />, isStill: true },
          { name: 'due', title: t('exports.dueAt'), cell: ({ due_at }) => (due_at ? <Time at={due_at} /> : t('exports.whenFull')), isStill: true },
        ]}
      />
    </Card>
  )
}
