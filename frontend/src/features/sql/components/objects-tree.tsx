import { ActionIcon, Card, Group, Stack, Text, Title, Tooltip, Tree, type TreeNodeData } from '@mantine/core'
import { IconChevronRight, IconRefresh } from '@tabler/icons-react'
import { useMemo } from 'react'
import { useTranslation } from 'react-i18next'

import type { Source } from '@/features/sql/api/sql'
import { useConnectors, useLiveObjects } from '@/features/sql/api/sql'
import { serverText } from '@/lib/texts'

/** What statements can name; a click writes the name into the editor. */
export function ObjectsTree({ onChoose }: { onChoose: (name: string) => void }) {
  const { t } = useTranslation()
  const objects = useLiveObjects()
  const connectors = useConnectors()
  const data = useMemo(() => {
    const of = (kind: string) => (objects.data?.sources ?? []).filter((source) => source.kind === kind)
    return [
      group('streams', of('stream').map(sourceNode)),
      group('tables', of('table').map(sourceNode)),
      group('topics', (objects.data?.topics ?? []).map(({ name, partitions }) => leaf('topics', name, `${partitions}`))),
      group(
        'connectors',
        (connectors.data?.connectors ?? []).map(({ name, home, state }) => leaf(`connectors.${home}`, name, state)),
      ),
    ]
  }, [objects.data, connectors.data])
  const warnings = [...(objects.data?.warnings ?? []), ...(connectors.data?.warnings ?? [])]
  return (
    <Card withBorder padding="sm">
      <Group justify="space-between" mb="xs">
        <Title order={2} size="h6">
          {t('sql.objects')}
        </Title>
        <Tooltip label={t('sql.refresh')}>
          <ActionIcon
            variant="subtle"
            color="gray"
            aria-label={t('sql.refresh')}
            onClick={() => void Promise.all([objects.refetch(), connectors.refetch()])}
          >
            <IconRefresh size={16} />
          </ActionIcon>
        </Tooltip>
      </Group>
      <Tree
        data={data}
        levelOffset={16}
        renderNode={({ node, expanded, hasChildren, elementProps }) => (
          <Group gap={4} wrap="nowrap" py={2} {...elementProps}>
            <IconChevronRight
              size={14}
              aria-hidden
              style={{ visibility: hasChildren ? 'visible' : 'hidden', rotate: expanded ? '90deg' : undefined, flexShrink: 0 }}
            />
            <Node node={node} onChoose={onChoose} />
          </Group>
        )}
      />
      <Stack gap={4} mt="xs">
        {warnings.map((warning) => (
          <Text key={warning} size="xs" c="yellow">
            {serverText(warning)}
          </Text>
        ))}
      </Stack>
    </Card>
  )
}

function Node({ node, onChoose }: { node: TreeNodeData; onChoose: (name: string) => void }) {
  const { t } = useTranslation()
  const { groupName, name, note } = node.nodeProps as { groupName?: 'streams' | 'tables' | 'topics' | 'connectors'; name: string; note: string }
  if (groupName) {
    return (
      <Text size="sm" fw={600}>
        {t(`sql.groups.${groupName}`)} <Note text={note} />
      </Text>
    )
  }
  return (
    <Text
      size="sm"
      ff="monospace"
      style={{ overflowWrap: 'anywhere' }}
      onDoubleClick={() => onChoose(quoted(name))}
      title={t('sql.insertHint')}
    >
      {name} <Note text={note} />
    </Text>
  )
}

function Note({ text }: { text: string }) {
  return (
    <Text span size="xs" c="dimmed">
      {text}
    </Text>
  )
}

function group(groupName: string, children: TreeNodeData[]): TreeNodeData {
  return { value: groupName, label: groupName, nodeProps: { groupName, name: groupName, note: String(children.length) }, children }
}

function leaf(under: string, name: string, note: string): TreeNodeData {
  return { value: `${under}.${name}`, label: name, nodeProps: { name, note } }
}

function sourceNode({ name, columns }: Source): TreeNodeData {
  const children = columns.map((column) => leaf(`source.${name}`, column.name, [column.type, column.key].filter(Boolean).join(' ')))
  return { ...leaf('source', name, ''), children }
}

/** A name as a statement writes it. */
export function quoted(name: string): string {
  return /^[a-z_]\w*$/i.test(name) ? name : `\`${name.replaceAll('`', '``')}\``
}
