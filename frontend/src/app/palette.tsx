import '@mantine/spotlight/styles.css'

import { Spotlight, type SpotlightActionData } from '@mantine/spotlight'
import { IconMailSearch, IconMoon, IconPlugConnected, IconPlus, IconRoute, IconSearch } from '@tabler/icons-react'
import { useMantineColorScheme } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useNavigate } from 'react-router'

import { linkOf, pages } from '@/app/route-table'
import { useConnectorChoices } from '@/lib/queries/connectors'
import { usePipelineChoices } from '@/lib/queries/pipelines'
import { includes, useRole } from '@/lib/queries/session'

const iconSize = 18

/** Goes to any page, pipeline or connector, and does what is often done, by a few typed letters. */
export function Palette() {
  const { t } = useTranslation()
  const navigate = useNavigate()
  const role = useRole()
  const { toggleColorScheme } = useMantineColorScheme()
  const [typed, setTyped] = useState('')
  const pipelines = usePipelineChoices(typed).data?.rows ?? []
  const connectors = useConnectorChoices(typed).data?.rows ?? []
  const goTo = (path: string) => () => void navigate(path)
  const places = pages
    .filter(({ group, role: needed }) => group && includes(role, needed ?? 'viewer'))
    .map((page): SpotlightActionData => ({
      id: page.path,
      label: t(page.title),
      leftSection: page.icon && <page.icon size={iconSize} />,
      onClick: goTo(linkOf(page, {})),
    }))
  const actions: SpotlightActionData[] = [
    ...(includes(role, 'editor')
      ? [{ id: 'new', label: t('pipelines.create'), leftSection: <IconPlus size={iconSize} />, onClick: goTo('/pipelines/new') }]
      : []),
    { id: 'find', label: t('messages.findOne'), leftSection: <IconMailSearch size={iconSize} />, onClick: goTo('/messages') },
    { id: 'theme', label: t('nav.theme'), leftSection: <IconMoon size={iconSize} />, onClick: toggleColorScheme },
  ]
  return (
    <Spotlight
      shortcut={['mod + K']}
      scrollable
      maxHeight={420}
      highlightQuery
      limit={40}
      onQueryChange={setTyped}
      nothingFound={t('palette.nothing')}
      searchProps={{ placeholder: t('palette.search'), 'aria-label': t('palette.search'), leftSection: <IconSearch size={iconSize} /> }}
      actions={[
        { group: t('palette.actions'), actions },
        { group: t('palette.pages'), actions: places },
        {
          group: t('pipelines.title'),
          actions: pipelines.map(({ id, name }) => ({
            id,
            label: name,
            leftSection: <IconRoute size={iconSize} />,
            onClick: goTo(`/pipelines/${id}`),
          })),
        },
        {
          group: t('connectors.title'),
          actions: connectors.map(({ id, name }) => ({
            id,
            label: name,
            leftSection: <IconPlugConnected size={iconSize} />,
            onClick: goTo(`/connectors/${id}/edit`),
          })),
        },
      ]}
    />
  )
}
