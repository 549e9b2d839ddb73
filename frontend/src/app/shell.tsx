import {
  ActionIcon,
  AppShell,
  Badge,
  Burger,
  Group,
  Menu,
  NavLink,
  SegmentedControl,
  Select,
  Skeleton,
  Text,
  useComputedColorScheme,
  useMantineColorScheme,
} from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { IconMoon, IconProgress, IconSun, IconUser, IconWifi, IconWifiOff } from '@tabler/icons-react'
import { Suspense } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, Outlet, useLocation } from 'react-router'

import { groups, pages } from '@/app/route-table'
import { ErrorBoundary } from '@/components/error-boundary'
import { HealthBanner } from '@/features/health/components/health-banner'
import { useSignOut } from '@/features/session/api/session'
import { clock } from '@/lib/format'
import i18n, { languages } from '@/lib/i18n'
import { LiveProvider, useLive } from '@/lib/live'
import { usePreferences } from '@/lib/preferences'
import { chooseWorkspace, includes, useMe, useRole, useWorkspace } from '@/lib/queries/session'

/** What every page shares: navigation, top bar, live connection, and the state of the installation. */
export function Shell() {
  const [opened, { toggle, close }] = useDisclosure()
  const { t } = useTranslation()
  const { pathname } = useLocation()
  return (
    <LiveProvider>
      <a className="skip-link" href="#content">
        {t('nav.skip')}
      </a>
      <AppShell
        header={{ height: 52 }}
        navbar={{ width: 240, breakpoint: 'sm', collapsed: { mobile: !opened } }}
        padding="lg"
      >
        <AppShell.Header>
          <Group h="100%" px="md" justify="space-between" wrap="nowrap">
            <Group gap="sm" wrap="nowrap">
              <Burger opened={opened} onClick={toggle} hiddenFrom="sm" size="sm" aria-label={t('nav.menu')} />
              <Text fw={700} size="lg">
                Headrace
              </Text>
            </Group>
            <Group gap="xs" wrap="nowrap">
              <LiveBadge />
              <ThemeSwitch />
              <AccountMenu />
            </Group>
          </Group>
        </AppShell.Header>
        <AppShell.Navbar p="xs" aria-label={t('nav.menu')}>
          <Navigation onNavigate={close} />
        </AppShell.Navbar>
        <AppShell.Main id="content">
          <HealthBanner />
          <ErrorBoundary key={pathname}>
            <Suspense fallback={<Skeleton height={320} />}>
              <Outlet />
            </Suspense>
          </ErrorBoundary>
        </AppShell.Main>
      </AppShell>
    </LiveProvider>
  )
}

function Navigation({ onNavigate }: { onNavigate: () => void }) {
  const { t } = useTranslation()
  const { pathname } = useLocation()
  const role = useRole()
  return groups.map((group) => (
    <div key={group}>
      <Text size="xs" c="dimmed" px="sm" pt="sm" pb={4}>
        {t(`nav.${group}`)}
      </Text>
      {pages
        .filter((page) => page.group === group && includes(role, page.role ?? 'viewer'))
        .map(({ path, title, icon: Icon }) => (
          <NavLink
            key={path}
            component={Link}
            to={path}
            label={t(title)}
            leftSection={Icon && <Icon size={18} aria-hidden />}
            active={pathname === path || pathname.startsWith(`${path}/`)}
            onClick={onNavigate}
          />
        ))}
    </div>
  ))
}

function LiveBadge() {
  const { t, i18n } = useTranslation()
  const { state, since } = useLive()
  const { timeZone } = usePreferences()
  const looks = {
    live: { color: 'gray', icon: IconWifi, label: t('live.live') },
    reconnecting: { color: 'yellow', icon: IconProgress, label: t('live.reconnecting') },
    stale: {
      color: 'yellow',
      icon: IconWifiOff,
      label: t('live.stale', { at: since ? clock(since, i18n.language, timeZone) : '…' }),
    },
  }
  const { color, icon: Icon, label } = looks[state]
  return (
    <Badge color={color} variant="light" leftSection={<Icon size={12} aria-hidden />} tt="none" role="status">
      {label}
    </Badge>
  )
}

function ThemeSwitch() {
  const { t } = useTranslation()
  const { setColorScheme } = useMantineColorScheme()
  const dark = useComputedColorScheme('light') === 'dark'
  const Icon = dark ? IconSun : IconMoon
  return (
    <ActionIcon
      variant="subtle"
      color="gray"
      aria-label={t('nav.theme')}
      onClick={() => setColorScheme(dark ? 'light' : 'dark')}
    >
      <Icon size={18} />
    </ActionIcon>
  )
}

function AccountMenu() {
  const { t, i18n: current } = useTranslation()
  const me = useMe()
  const workspace = useWorkspace()
  const workspaces = me.data?.workspaces ?? []
  const signOut = useSignOut()
  const { timeZoneChoice, setTimeZoneChoice } = usePreferences()
  return (
    <Menu width={240} closeOnItemClick={false}>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" aria-label={t('nav.account')}>
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
          onChange={(language) => void i18n.changeLanguage(language ?? 'en')}
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
