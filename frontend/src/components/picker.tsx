import { Modal, Stack, Text, TextInput, UnstyledButton } from '@mantine/core'
import { IconSearch } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import classes from './picker.module.css'

export interface Choice {
  id: string
  title: string
  description: string
  /** Why it cannot be chosen. */
  unavailable?: string
}

export interface ChoiceGroup {
  label: string
  choices: Choice[]
}

interface Props {
  opened: boolean
  onClose: () => void
  title: string
  /** What the search is for. */
  search: string
  groups: ChoiceGroup[]
  onPick: (id: string) => void
}

/** Chooses one of many kinds, by their purpose or by a search. */
export function Picker({ opened, onClose, title, ...choices }: Props) {
  return (
    <Modal opened={opened} onClose={onClose} title={title} size="lg">
      <Choices {...choices} />
    </Modal>
  )
}

function Choices({ search, groups, onPick }: Pick<Props, 'search' | 'groups' | 'onPick'>) {
  const { t } = useTranslation()
  const [typed, setTyped] = useState('')
  const wanted = typed.trim().toLowerCase()
  const matching = groups
    .map(({ label, choices }) => ({
      label,
      choices: choices.filter(({ id, title, description }) => `${id} ${title} ${description}`.toLowerCase().includes(wanted)),
    }))
    .filter(({ choices }) => choices.length)
  const first = matching.flatMap(({ choices }) => choices).find(({ unavailable }) => !unavailable)
  return (
    <Stack gap="md">
      <TextInput
        data-autofocus
        aria-label={search}
        placeholder={search}
        leftSection={<IconSearch size={16} aria-hidden />}
        value={typed}
        onChange={(event) => setTyped(event.currentTarget.value)}
        onKeyDown={(event) => event.key === 'Enter' && first && onPick(first.id)}
      />
      {matching.map(({ label, choices }) => (
        <div key={label} role="group" aria-label={label}>
          <Text size="xs" c="dimmed" mb={4}>
            {label}
          </Text>
          {choices.map((choice) => (
            <UnstyledButton key={choice.id} className={classes.choice} disabled={Boolean(choice.unavailable)} onClick={() => onPick(choice.id)}>
              <Text size="sm" fw={600} span>
                {choice.title}
              </Text>
              <Text size="sm" c="dimmed" span>
                {choice.unavailable || choice.description}
              </Text>
            </UnstyledButton>
          ))}
        </div>
      ))}
      {!matching.length && <Text size="sm">{t('picker.nothing')}</Text>}
    </Stack>
  )
}
