import { ActionIcon, Menu, SegmentedControl, Select, Text } from '@mantine/core'
import { IconUser } from '@tabler/icons-react'
import { useRef } from 'react'
import { useTranslation } from 'react-i18next'

import { useSignOut } from '@/features/session/api/session'
import { chooseLanguage, languages, type Language } from '@/lib/i18n'
import { usePreferences } from '@/lib/preferences'
import { chooseWorkspace, useMe, useWorkspace } from '@/lib/queries/session'

/** Who is signed in, and what they prefer. It opens as it appears. */
export function AccountMenu() {
  const { t, i18n: current } = useTranslation()
  const me = useMe()
  const workspace = useWorkspace()
  const workspaces = me.data?.workspaces ?? []
  const signOut = useSignOut()
  const { timeZoneChoice, setTimeZoneChoice } = usePreferences()
  const button = useRef<HTMLButtonElement>(null)
  return (
    <Menu width={240} closeOnItemClick={false} defaultOpened onClose={() => button.current?.focus()}>
      <Menu.Target>
        <ActionIcon ref={button} variant="subtle" color="gray" aria-label={t('nav.account')}>
          <IconUser size={18} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          {me.data?.username}, {workspace?.name}
        </Menu.Label>
        {workspaces.length > 1 && (
          <Select
            p="xs"
            label={t('nav.workspace')}
            allowDeselect={false}
            comboboxProps={{ withinPortal: false }}
            data={workspaces.map(({ slug, name }) => ({ value: slug, label: name }))}
            value={workspace?.slug ?? null}
            onChange={(slug) => slug && chooseWorkspace(slug)}
          />
        )}
        <Select
          p="xs"
          label={t('nav.language')}
          allowDeselect={false}
          comboboxProps={{ withinPortal: false }}
          data={Object.entries(languages).map(([value, label]) => ({ value, label }))}
          value={current.language}
          onChange={(language) => void chooseLanguage(language as Language)}
        />
        <Text size="sm" fw={500} px="xs">
          {t('nav.timeZone')}
        </Text>
        <SegmentedControl
          m="xs"
          size="xs"
          value={timeZoneChoice}
          onChange={(choice) => setTimeZoneChoice(choice)}
          data={[
            { value: 'local', label: t('nav.timeZoneLocal') },
            { value: 'UTC', label: 'UTC' },
          ]}
        />
        <Menu.Divider />
        <Menu.Item onClick={() => signOut.mutate()}>{t('nav.signOut')}</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  )
}
