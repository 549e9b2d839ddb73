import {
  ActionIcon,
  Badge,
  Burger,
  Group,
  NavLink,
  Skeleton,
  Text,
  Tooltip,
  useComputedColorScheme,
  useMantineColorScheme,
} from '@mantine/core'
import { useDisclosure, useHotkeys } from '@mantine/hooks'
import { IconMoon, IconProgress, IconSearch, IconSun, IconUser, IconWifi, IconWifiOff } from '@tabler/icons-react'
import { lazy, Suspense, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, Outlet, useLocation } from 'react-router'

import { ListKeys } from '@/app/list-keys'
import { groups, linkOf, pages } from '@/app/route-table'
import classes from '@/app/shell.module.css'
import { ErrorBoundary } from '@/components/error-boundary'
import { Logo } from '@/components/logo'
import { HealthBanner } from '@/features/health/components/health-banner'
import { clock } from '@/lib/format'
import { LiveProvider, useLive } from '@/lib/live'
import { usePreferences } from '@/lib/preferences'
import { includes, useRole } from '@/lib/queries/session'

const AccountMenu = lazy(async () => ({ default: (await import('@/app/account-menu')).AccountMenu }))
const Palette = lazy(async () => ({ default: (await import('@/app/palette')).Palette }))

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
      <div className={classes.shell}>
        <Group component="header" className={classes.header} justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap">
            <Burger opened={opened} onClick={toggle} hiddenFrom="md" size="sm" aria-label={t('nav.menu')} aria-expanded={opened} />
            <Group component={Link} {...{ to: '/' }} gap={8} wrap="nowrap" c="inherit" td="none">
              <Logo />
              <Text fw={700} size="lg" visibleFrom="xs">
                Headrace
              </Text>
            </Group>
          </Group>
          <Group gap="xs" wrap="nowrap">
            <LiveBadge />
            <PaletteButton />
            <ThemeSwitch />
            <AccountButton />
          </Group>
        </Group>
        <nav className={classes.rail} data-opened={opened || undefined} aria-label={t('nav.menu')}>
          <Navigation onNavigate={close} />
        </nav>
        <main className={classes.main} id="content">
          <ListKeys />
          <HealthBanner />
          <ErrorBoundary place={pathname}>
            <Suspense fallback={<Skeleton height={320} />}>
              <Outlet />
            </Suspense>
          </ErrorBoundary>
        </main>
      </div>
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
        .map((page) => ({ ...page, path: linkOf(page, {}) }))
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

/** Opens the command palette, which is loaded when it is first asked for, by this button or by Ctrl-K. */
function PaletteButton() {
  const { t } = useTranslation()
  const [isWanted, setWanted] = useState(false)
  const open = () => {
    setWanted(true)
    void import('@mantine/spotlight').then(({ spotlight }) => spotlight.open())
  }
  useHotkeys(isWanted ? [] : [['mod+K', open]], [])
  return (
    <>
      <Tooltip label={`${t('palette.search')} (Ctrl-K)`}>
        <ActionIcon variant="subtle" color="gray" aria-label={t('palette.open')} onClick={open}>
          <IconSearch size={18} />
        </ActionIcon>
      </Tooltip>
      {isWanted && (
        <Suspense>
          <Palette />
        </Suspense>
      )}
    </>
  )
}

function LiveBadge() {
  const { t, i18n } = useTranslation()
  const { state, now } = useLive()
  const { timeZone } = usePreferences()
  const looks = {
    live: { color: 'gray', icon: IconWifi, label: t('live.live') },
    reconnecting: { color: 'yellow', icon: IconProgress, label: t('live.reconnecting') },
    stale: {
      color: 'yellow',
      icon: IconWifiOff,
      label: t('live.stale', { at: now ? clock(new Date(now * 1000), i18n.language, timeZone) : '…' }),
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

/** The account's menu, which is loaded when it is first asked for. */
function AccountButton() {
  const { t } = useTranslation()
  const [isWanted, setWanted] = useState(false)
  const button = (
    <ActionIcon variant="subtle" color="gray" aria-label={t('nav.account')} onClick={() => setWanted(true)}>
      <IconUser size={18} />
    </ActionIcon>
  )
  return isWanted ? (
    <Suspense fallback={button}>
      <AccountMenu />
    </Suspense>
  ) : (
    button
  )
}
