import { Alert, Anchor, Badge, Card, Code, Group, Loader, Stack, Table, Text } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import type { CSSProperties } from 'react'
import { useTranslation } from 'react-i18next'

import { Scrolled } from '@/components/scrolled'
import type { Failure } from '@/features/sql/api/sql'
import { mostRows, type Outcome } from '@/features/sql/outcome'
import { serverText } from '@/lib/texts'

const shortCharacters = 30

interface Props {
  outcomes: Outcome[]
  /** Shows the place of a failure in the editor. */
  onShow: (line: number, column: number) => void
}

/** What the statements have answered, in their order. */
export function Outcomes({ outcomes, onShow }: Props) {
  return (
    <Stack gap="sm" aria-live="polite">
      {outcomes.map((outcome, index) => (
        <One key={index} outcome={outcome} onShow={onShow} />
      ))}
    </Stack>
  )
}

function One({ outcome, onShow }: { outcome: Outcome; onShow: Props['onShow'] }) {
  switch (outcome.kind) {
    case 'failure':
      return <Failed failure={outcome.failure} onShow={onShow} />
    case 'reading':
      return <Rows {...outcome} />
    case 'entity': {
      const { statement, message, warnings, ...fields } = outcome.entity
      return (
        <Card withBorder padding="sm">
          <Statement text={statement} />
          {warnings.map((warning) => (
            <Text key={warning} size="sm" c="yellow">
              {serverText(warning)}
            </Text>
          ))}
          {message && <Text size="sm">{serverText(message)}</Text>}
          <Fields fields={fields} />
        </Card>
      )
    }
  }
}

function Statement({ text }: { text: string }) {
  return (
    <Text size="xs" c="dimmed" ff="monospace" mb={4} lineClamp={2} title={text}>
      {text}
    </Text>
  )
}

function Failed({ failure, onShow }: { failure: Failure; onShow: Props['onShow'] }) {
  const { t } = useTranslation()
  const { line, column } = failure
  const properties = Object.entries(failure.properties)
  return (
    <Alert color="red" icon={<IconAlertTriangle />} title={serverText(failure.message)}>
      {properties.length > 0 && (
        <Table withRowBorders={false} mb="xs">
          <Table.Tbody>
            {properties.map(([name, reasons]) => (
              <Table.Tr key={name}>
                <Table.Th scope="row">
                  <Code>{name}</Code>
                </Table.Th>
                <Table.Td>{reasons.map(serverText).join(' ')}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
      <Anchor component="button" size="sm" onClick={() => onShow(line, column)}>
        {t('sql.place', { line, column })}
      </Anchor>
    </Alert>
  )
}

/** A query's rows: those of one that goes on with the newest first. */
function Rows({ reading, rows, count: all, ended }: Extract<Outcome, { kind: 'reading' }>) {
  const { t } = useTranslation()
  const ordered = reading.id.startsWith('PULL') ? rows : rows.toReversed()
  return (
    <Card withBorder padding="sm">
      <Statement text={reading.statement} />
      <Group gap="xs" mb="xs">
        {ended === null ? (
          <Badge variant="light" tt="none" leftSection={<Loader size={10} aria-hidden />}>
            {t('sql.goesOn', { id: reading.id })}
          </Badge>
        ) : (
          <Badge variant="light" color="gray" tt="none">
            {t('sql.ended')}
          </Badge>
        )}
        <Text size="sm">
          {all > mostRows
            ? t('sql.someRows', { shown: mostRows, count: all })
            : t('sql.rows', { count: all })}
        </Text>
        {reading.message && ended === null && !all && (
          <Text size="sm" c="dimmed">
            {serverText(reading.message)}
          </Text>
        )}
      </Group>
      <Grid columns={reading.columns.map((column) => [column.name, column.type])} rows={ordered} />
    </Card>
  )
}

function Grid({ columns, rows }: { columns: [title: string, type?: string][]; rows: unknown[][] }) {
  const { t } = useTranslation()
  return (
    <Scrolled mah="60vh" label={t('sql.tabs.results')}>
      <Table striped stickyHeader withColumnBorders fz="sm">
        <Table.Thead>
          <Table.Tr>
            {columns.map(([title, type]) => (
              <Table.Th key={title}>
                {title}
                {type && (
                  <Text size="xs" c="dimmed" fw={400}>
                    {type}
                  </Text>
                )}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row, index) => (
            <Table.Tr key={index}>
              {row.map((value, place) => (
                <Table.Td key={place} style={breaksOf(value)}>
                  <Cell value={value} />
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Scrolled>
  )
}

/** Numbers, times and other short values stand on one line. */
function breaksOf(value: unknown): CSSProperties {
  const isShort = value === null || (typeof value !== 'object' && JSON.stringify(value).length <= shortCharacters)
  return isShort ? { whiteSpace: 'nowrap' } : { overflowWrap: 'anywhere', minWidth: '14rem' }
}

function Cell({ value }: { value: unknown }) {
  if (value === null || value === '') {
    return (
      <Text span size="xs" c="dimmed">
        {value === null ? 'NULL' : '–'}
      </Text>
    )
  }
  return typeof value === 'string' ? value : JSON.stringify(value)
}

/** Lists of an answer as tables of their own, and its other fields as one; its type is for programs. */
function Fields({ fields }: { fields: Record<string, unknown> }) {
  const { t } = useTranslation()
  const single = Object.entries(fields).filter(([name, value]) => name !== 'type' && !Array.isArray(value) && value !== '')
  const lists = Object.entries(fields).filter((entry): entry is [string, unknown[]] => Array.isArray(entry[1]))
  return (
    <>
      {single.length > 0 && (
        <Table withRowBorders={false} fz="sm">
          <Table.Tbody>
            {single.map(([name, value]) => (
              <Table.Tr key={name}>
                <Table.Th scope="row" w={140}>
                  {titleOf(name)}
                </Table.Th>
                <Table.Td style={{ overflowWrap: 'anywhere' }}>
                  <Cell value={value} />
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
      {lists.map(([name, items]) =>
        items.length ? (
          <Listed key={name} name={name} items={items} />
        ) : single.length ? null : (
          <Text key={name} size="sm" c="dimmed">
            {t('sql.nothing')}
          </Text>
        ),
      )}
    </>
  )
}

function Listed({ name, items }: { name: string; items: unknown[] }) {
  const first = items[0]
  if (typeof first !== 'object' || first === null) {
    return <Grid columns={[[titleOf(name)]]} rows={items.map((item) => [item])} />
  }
  const names = Object.keys(first)
  const rows = items.map((item) => names.map((one) => (item as Record<string, unknown>)[one]))
  return <Grid columns={names.map((one) => [titleOf(one)])} rows={rows} />
}

/** The answers' fields are words of the language, and are not translated. */
function titleOf(field: string): string {
  return field.replaceAll('_', ' ')
}
