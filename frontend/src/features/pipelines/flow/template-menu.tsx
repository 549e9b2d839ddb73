import { Button } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { IconTemplate } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import { Picker } from '@/components/picker'
import type { Config } from '@/features/pipelines/api/pipelines'

import templates from './templates.json'

type Template = keyof typeof templates

/** Configurations to start from. What only a person knows, such as a connector, is left to be filled in. */
export function TemplateMenu({ onPick }: { onPick: (config: Config) => void }) {
  const { t } = useTranslation()
  const [opened, { open, close }] = useDisclosure()
  const choices = (Object.keys(templates) as Template[]).map((id) => ({
    id,
    title: t(`flow.templates.${id}.title`),
    description: t(`flow.templates.${id}.description`),
  }))
  return (
    <>
      <Button size="xs" variant="default" leftSection={<IconTemplate size={14} />} onClick={open}>
        {t('flow.template')}
      </Button>
      <Picker
        opened={opened}
        onClose={close}
        title={t('flow.template')}
        search={t('flow.searchTemplate')}
        groups={[{ label: t('flow.templateHint'), choices }]}
        onPick={(id) => {
          close()
          onPick(templates[id as Template])
        }}
      />
    </>
  )
}
