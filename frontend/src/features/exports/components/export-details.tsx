import { Alert, Button, Code, Group, Stack, Table, Text } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import type { TFunction } from 'i18next'
import { useTranslation } from 'react-i18next'

import { ConfirmButton } from '@/components/confirm-button'
import { Facts, type Fact } from '@/components/facts'
import { Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import { useAbortExport, useExport, useRetryExport, type ExportDetail } from '@/features/exports/api/exports'
import { ExportState } from '@/features/exports/components/export-state'
import { rows } from '@/features/exports/components/export-table'
import { bytes } from '@/lib/format'
import { reasonLabel } from '@/lib/reasons'
import { usePipelineName } from '@/lib/queries/pipelines'
import { includes, useRole } from '@/lib/queries/session'

/** The state of a file, its manifest and its first rows. */
export function ExportDetails({ id }: { id: string }) {
  const query = useExport(id)
  return (
    <Loaded query={query}>
      {(file) => (
        <Stack>
          <Failure file={file} />
          <ExportActions file={file} />
          <FileFacts file={file} />
          {file.preview && <Preview preview={file.preview} />}
        </Stack>
      )}
    </Loaded>
  )
}

/** Why it could not be stored, and what comes of it. */
export function Failure({ file }: { file: ExportDetail }) {
  const { t } = useTranslation()
  // Of one that is to be written again, this is the error of the former try.
  const hasEnded = file.state === 'failed' || file.state === 'aborted'
  if (!file.error) return null
  return (
    <Alert color={file.due_at ? 'yellow' : 'red'} icon={<IconAlertTriangle />} title={reasonLabel(t, file.reason)}>
      <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
        {file.error}
      </Text>
      {hasEnded && (
        <Text size="sm" mt="xs">
          {file.state === 'failed' && file.due_at ? (
            <>
              {t('exports.nextTry')} <Time at={file.due_at} />
            </>
          ) : (
            t(file.can_retry ? 'exports.byHand' : 'exports.notKept')
          )}
        </Text>
      )}
    </Alert>
  )
}

/** What may be done about a file, to those who may do it. */
export function ExportActions({ file }: { file: ExportDetail }) {
  const { t } = useTranslation()
  const role = useRole()
  const retry = useRetryExport()
  const abort = useAbortExport()
  const canAbort = file.state !== 'committed' && file.state !== 'aborted'
  if (!includes(role, 'operator') || !(file.can_retry || canAbort)) return null
  const write = (version: 'original' | 'current') => retry.mutate({ id: file.id, version }, { onError: toastFailed })
  return (
    <Group gap="xs">
      {file.can_retry && (
        <>
          <Button size="xs" loading={retry.isPending} onClick={() => write('original')}>
            {t('exports.retry')}
          </Button>
          <Button size="xs" variant="default" loading={retry.isPending} onClick={() => write('current')}>
            {t('exports.retryCurrent')}
          </Button>
        </>
      )}
      {canAbort && (
        <ConfirmButton
          size="xs"
          title={t('exports.abortTitle')}
          text={t('exports.abortText')}
          onConfirm={() => abort.mutate(file.id, { onError: toastFailed })}
        >
          {t('exports.abort')}
        </ConfirmButton>
      )}
    </Group>
  )
}

function FileFacts({ file }: { file: ExportDetail }) {
  const { t, i18n } = useTranslation()
  const nameOf = usePipelineName()
  const manifest = file.manifest as Manifest | null
  const facts: Fact[] = [
    [t('common.status'), <ExportState key="state" file={file} />],
    [t('exports.file'), <Code key="path">{file.path}</Code>],
    [t('deliveries.pipeline'), nameOf(file.pipeline)],
    [t('pipelines.output'), t('exports.outputAndVersion', { output: file.output, version: file.version })],
    [t('exports.messages'), rows(file, i18n.language)],
    [t('exports.bodies'), bytes(file.bytes, i18n.language)],
    [t('exports.created'), <Time key="created" at={file.created_at} />],
    ...(manifest ? manifestFacts(manifest, t, i18n.language) : []),
    ...(file.committed_at
      ? [[t('exports.committed'), <Time key="committed" at={file.committed_at} />] satisfies Fact]
      : []),
  ]
  return (
    <Facts facts={facts} />
  )
}

interface Manifest {
  format: string
  compression: string
  bytes: number
  sha256: string
  first_message_id: string
  last_message_id: string
  schema: { name: string; type: string }[]
}

function manifestFacts(
  manifest: Manifest,
  t: TFunction,
  language: string,
): Fact[] {
  return [
    [t('exports.format'), [manifest.format, manifest.compression].filter((name) => name !== 'none').join(', ')],
    [t('exports.size'), bytes(manifest.bytes, language)],
    [t('exports.columns'), columnsOf(manifest) || t('exports.allFields')],
    [t('exports.firstId'), <Code key="first">{manifest.first_message_id}</Code>],
    [t('exports.lastId'), <Code key="last">{manifest.last_message_id}</Code>],
    ['SHA-256', <Code key="hash">{manifest.sha256}</Code>],
  ]
}

/** With their types, where the format has any. */
export function columnsOf({ format, schema }: Pick<Manifest, 'format' | 'schema'>): string {
  const typed = format === 'parquet' || format === 'avro'
  return schema.map(({ name, type }) => (typed ? `${name} (${type})` : name)).join(', ')
}

function Preview({ preview }: { preview: NonNullable<ExportDetail['preview']> }) {
  const { t } = useTranslation()
  return (
    <>
      <Text fw={600} size="sm">
        {t('exports.preview', { count: preview.rows.length })}
      </Text>
      <Table.ScrollContainer minWidth={preview.columns.length * 110}>
        <Table fz="xs">
          <Table.Thead>
            <Table.Tr>
              {preview.columns.map((column) => (
                <Table.Th key={column}>{column}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {preview.rows.map((row, index) => (
              <Table.Tr key={index}>
                {row.map((value, column) => (
                  <Table.Td key={preview.columns[column]} c={value === null ? 'dimmed' : undefined}>
                    {value ?? '–'}
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </>
  )
}
