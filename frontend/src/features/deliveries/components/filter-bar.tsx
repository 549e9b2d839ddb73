import { Group, Select, TextInput } from '@mantine/core'
import { useDebouncedCallback } from '@mantine/hooks'
import { IconSearch } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import { PipelineSelect } from '@/components/pipeline-select'
import type { Filter } from '@/lib/use-filter'

export interface Choice {
  name: string
  label: string
  data: { value: string; label: string }[]
}

interface Props {
  filter: Filter
  set: (name: string, value: string | null) => void
  choices: Choice[]
  /** The text filter's name and label. */
  text: { name: string; label: string }
}

const choiceWidth = { base: '100%', xs: 190 }

/** Pipeline, a page's own choices, and a text. */
export function FilterBar({ filter, set, choices, text }: Props) {
  const { t } = useTranslation()
  const search = useDebouncedCallback((value: string) => set(text.name, value), 300)
  return (
    <Group mb="md" align="flex-end">
      <PipelineSelect w={choiceWidth} value={filter.pipeline ?? null} onChange={(value) => set('pipeline', value)} />
      {choices.map(({ name, label, data }) => (
        <Select
          key={name}
          w={choiceWidth}
          label={label}
          placeholder={t('deliveries.any')}
          clearable
          searchable={data.length > 8}
          data={data}
          value={filter[name] ?? null}
          onChange={(value) => set(name, value)}
        />
      ))}
      <TextInput
        key={text.name}
        w={{ base: '100%', xs: 260 }}
        label={text.label}
        leftSection={<IconSearch size={16} />}
        defaultValue={filter[text.name] ?? ''}
        onChange={(event) => search(event.currentTarget.value)}
      />
    </Group>
  )
}
