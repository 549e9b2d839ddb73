import { IconFilter, IconListSearch, IconPlugConnected, IconSend, IconWaveSine, IconWorld } from '@tabler/icons-react'
import { useCallback } from 'react'
import { useTranslation } from 'react-i18next'

import { usePipelineSchema } from '@/features/pipelines/api/pipelines'
import { useConnectors, useConnectorTypes } from '@/lib/queries/connectors'
import { useServerTexts } from '@/lib/texts'

import type { Look } from './flow-graph'
import { summaryOf, type Part } from './parts'
import { variantOf } from './part-schema'

const inputIcons = { http: IconWorld, connector: IconPlugConnected, filter: IconFilter }

/** The names of a part, as its node and its side panel show them. */
export function useNames(): (part: Part) => Pick<Look, 'title' | 'detail' | 'icon'> {
  const { t } = useTranslation()
  const text = useServerTexts()
  const schema = usePipelineSchema().data
  const connectors = useConnectors().data?.rows
  const types = useConnectorTypes().data
  return useCallback(
    ({ path, kind, value }: Part) => {
      const connector = connectors?.find(({ id }) => id === value.connector)
      const type = text(types?.find((known) => known.type === connector?.type)?.title ?? '')
      const system = connector ? `${connector.name}${type && ` (${type})`}` : ''
      const title = text(variantOf(schema, path, value)?.title ?? '')
      switch (kind) {
        case 'input': {
          const Icon = inputIcons[value.type as keyof typeof inputIcons] ?? IconPlugConnected
          return { title: system || title || t('flow.input'), detail: system ? title : t('flow.input'), icon: <Icon size={16} aria-hidden /> }
        }
        case 'step':
          return { title, detail: summaryOf(value) }
        case 'index':
          return {
            title: t('flow.index'),
            detail: (value.index as { name?: string }[]).map(({ name }) => name ?? '…').join(', '),
            icon: <IconListSearch size={16} aria-hidden />,
          }
        case 'stream':
          return { title: t('flow.stream'), detail: t('flow.streamDetail'), icon: <IconWaveSine size={16} aria-hidden /> }
        case 'output':
          return {
            title: (value.name as string | undefined) || t('flow.newOutput'),
            detail: system || t('flow.noConnector'),
            icon: <IconSend size={16} aria-hidden />,
          }
      }
    },
    [t, text, schema, connectors, types],
  )
}
