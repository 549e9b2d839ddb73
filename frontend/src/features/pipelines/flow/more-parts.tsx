import { Button, Menu, Text } from '@mantine/core'
import { IconPlus } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import type { Config } from '@/features/pipelines/api/pipelines'

/** What a pipeline may also have, once. */
export function MoreParts({ config, onAdd }: { config: Config; onAdd: (path: string, value: Record<string, unknown>) => void }) {
  const { t } = useTranslation()
  const hasIndex = ((config.index ?? []) as unknown[]).length > 0
  if (hasIndex && config.stream_processing) return null
  return (
    <Menu>
      <Menu.Target>
        <Button size="xs" variant="default" leftSection={<IconPlus size={14} />}>
          {t('flow.addMore')}
        </Button>
      </Menu.Target>
      <Menu.Dropdown maw={420}>
        {!hasIndex && (
          <Menu.Item onClick={() => onAdd('index', { index: [{}] })}>
            {t('flow.index')}
            <Text size="xs" c="dimmed">
              {t('flow.indexHint')}
            </Text>
          </Menu.Item>
        )}
        {!config.stream_processing && (
          <Menu.Item onClick={() => onAdd('stream_processing', {})}>
            {t('flow.stream')}
            <Text size="xs" c="dimmed">
              {t('flow.streamHint')}
            </Text>
          </Menu.Item>
        )}
      </Menu.Dropdown>
    </Menu>
  )
}
