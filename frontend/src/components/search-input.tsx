import { TextInput } from '@mantine/core'
import { IconSearch } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

interface Props {
  value: string
  onChange: (value: string) => void
  /** What is searched, on a page with several lists. */
  label?: string
}

/** Narrows a list down by name. */
export function SearchInput({ value, onChange, label }: Props) {
  const { t } = useTranslation()
  return (
    <TextInput
      aria-label={label ?? t('common.search')}
      placeholder={label ?? t('common.search')}
      data-search
      leftSection={<IconSearch size={16} />}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  )
}
