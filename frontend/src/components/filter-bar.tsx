import { Group, Select, TextInput } from '@mantine/core'
import { useDebouncedCallback } from '@mantine/hooks'
import { IconSearch } from '@tabler/icons-react'
import { useEffect, useRef } from 'react'
import { useTranslation } from 'react-i18next'

import { PipelineSelect } from '@/components/pipeline-select'
import { SavedViews } from '@/components/saved-views'
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
  const input = useRef<HTMLInputElement>(null)
  const searched = filter[text.name] ?? ''
  useEffect(() => {
    // A saved view or the browser's buttons changed it; what is being typed is ahead of the address.
    if (input.current && input.current !== document.activeElement) input.current.value = searched
  }, [searched])
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
        ref={input}
        w={{ base: '100%', xs: 260 }}
        label={text.label}
        data-search
        leftSection={<IconSearch size={16} />}
        defaultValue={searched}
        onChange={(event) => search(event.currentTarget.value)}
      />
      <SavedViews />
    </Group>
  )
}
