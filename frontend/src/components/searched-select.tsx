import { Select, type SelectProps } from '@mantine/core'
import { useState } from 'react'

import type { Listing } from '@/lib/queries/listing'

const searchableFrom = 8

interface Props extends Omit<SelectProps, 'data'> {
  /** What there is to choose from; of too many, what the server finds by what is typed. */
  useChoices: (typed: string) => { data: Listing<{ id: string; name: string }> | undefined; isFetching: boolean }
}

/** Chooses one of the workspace's things by its name, or none of them. */
export function SearchedSelect({ useChoices, value, ...props }: Props) {
  const [typed, setTyped] = useState('')
  const choices = useChoices(typed)
  const names = choices.data?.rows.map(({ id, name }) => ({ value: id, label: name })) ?? []
  // One that is not among them, such as one that was deleted, is named instead of looking like no choice.
  if (value && !choices.isFetching && !names.some((known) => known.value === value)) names.push({ value, label: value })
  return (
    <Select clearable searchable={names.length > searchableFrom || typed !== ''} onSearchChange={setTyped} data={names} value={value} {...props} />
  )
}
