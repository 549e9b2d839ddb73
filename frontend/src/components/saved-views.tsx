import { ActionIcon, Anchor, Button, Group, Popover, Stack, Text, TextInput } from '@mantine/core'
import { useDisclosure, useLocalStorage } from '@mantine/hooks'
import { IconBookmark, IconTrash } from '@tabler/icons-react'
import { useState, type SubmitEvent } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, useLocation } from 'react-router'

interface View {
  name: string
  /** The filters and the order, as they stand in the address. */
  search: string
}

/** Filters and orders of a list that were given a name, in this browser. */
export function SavedViews() {
  const { t } = useTranslation()
  const { pathname } = useLocation()
  const [opened, { toggle, close }] = useDisclosure()
  const [views, setViews] = useLocalStorage<View[]>({ key: `views:${pathname}`, defaultValue: [] })
  return (
    <Popover opened={opened} onChange={(open) => !open && close()} width={300} position="bottom-end" trapFocus returnFocus shadow="md">
      <Popover.Target>
        <Button variant="default" leftSection={<IconBookmark size={16} aria-hidden />} onClick={toggle}>
          {t('views.title')}
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <Stack gap="sm">
          {views.length === 0 && (
            <Text size="sm" c="dimmed">
              {t('views.none')}
            </Text>
          )}
          {views.map((view) => (
            <Group key={view.name} justify="space-between" wrap="nowrap">
              <Anchor component={Link} to={`${pathname}${view.search}`} size="sm" onClick={close} style={{ overflowWrap: 'anywhere' }}>
                {view.name}
              </Anchor>
              <ActionIcon
                variant="subtle"
                color="gray"
                aria-label={t('views.remove', { name: view.name })}
                onClick={() => setViews(views.filter((other) => other !== view))}
              >
                <IconTrash size={16} />
              </ActionIcon>
            </Group>
          ))}
          <SaveForm onSave={(view) => setViews([...views.filter(({ name }) => name !== view.name), view])} />
        </Stack>
      </Popover.Dropdown>
    </Popover>
  )
}

function SaveForm({ onSave }: { onSave: (view: View) => void }) {
  const { t } = useTranslation()
  const { search } = useLocation()
  const [name, setName] = useState('')
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    if (!name.trim()) return
    onSave({ name: name.trim(), search })
    setName('')
  }
  return (
    <form onSubmit={submit}>
      <Group align="flex-end" wrap="nowrap" gap="xs">
        <TextInput label={t('views.name')} value={name} onChange={(event) => setName(event.currentTarget.value)} style={{ flex: 1 }} />
        <Button type="submit" variant="default">
          {t('common.save')}
        </Button>
      </Group>
    </form>
  )
}
