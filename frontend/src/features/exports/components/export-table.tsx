import { Text, UnstyledButton } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { DataTable } from '@/components/data-table'
import { NameAndPart } from '@/components/name-and-part'
import { Time } from '@/components/time'
import type { Export } from '@/features/exports/api/exports'
import { ExportState } from '@/features/exports/components/export-state'
import { bytes, count } from '@/lib/format'
import { reasonLabel } from '@/lib/reasons'
import { usePipelineName } from '@/lib/queries/pipelines'

export function ExportTable({ files, onShow }: { files: Export[]; onShow: (id: string) => void }) {
  const { t, i18n } = useTranslation()
  const nameOf = usePipelineName()
  return (
    <DataTable
      label={t('exports.title')}
      isFramed
      rows={files}
      keyOf={({ id }) => id}
      onOpen={({ id }) => onShow(id)}
      columns={[
        {
          name: 'file',
          title: t('exports.file'),
          cell: ({ id, path, error, reason }) => (
            <>
              <UnstyledButton fz="sm" onClick={() => onShow(id)}>
                {path}
              </UnstyledButton>
              {error && (
                <Text size="xs" c="dimmed">
                  {reasonLabel(t, reason)}: {error}
                </Text>
              )}
            </>
          ),
          isLead: true,
        },
        { name: 'pipeline', title: t('deliveries.pipeline'), cell: ({ pipeline, output }) => <NameAndPart name={nameOf(pipeline)} part={output} /> },
        { name: 'state', title: t('common.status'), cell: (file) => <ExportState file={file} /> },
        { name: 'rows', title: t('exports.messages'), cell: (file) => rows(file, i18n.language), isNumber: true, isStill: true },
        {
          name: 'size',
          title: t('exports.size'),
          cell: ({ file_bytes }) => (file_bytes === null ? '–' : bytes(file_bytes, i18n.language)),
          isNumber: true,
          isStill: true,
        },
        { name: 'created', title: t('exports.created'), cell: ({ created_at }) => <Time at={created_at} />, isStill: true },
      ]}
    />
  )
}

/** 1,200 of 5,000 while it is written. */
export function rows({ state, rows: total, written_rows: written }: Export, language: string): string {
  return state === 'writing' ? `${count(written, language)} / ${count(total, language)}` : count(total, language)
}
