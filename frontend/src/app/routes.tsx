import { Anchor } from '@mantine/core'
import { lazy, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, Navigate, Route, Routes, useParams } from 'react-router'

import { linkOf, pages, parentsOf, type PageEntry } from '@/app/route-table'
import { Shell } from '@/app/shell'
import { Page, PagePlace } from '@/components/page'
import { Empty } from '@/components/states'
import { LoginPage } from '@/features/session/components/login-page'
import { RequireSession } from '@/features/session/components/require-session'
import { includes, useRole } from '@/lib/queries/session'

const routes = pages.map((page) => ({ page, Content: lazy(async () => ({ default: await page.load() })) }))

export function AppRoutes() {
  return (
    <Routes>
      <Route path="/login" element={<LoginPage />} />
      <Route
        element={
          <RequireSession>
            <Shell />
          </RequireSession>
        }
      >
        <Route index element={<Navigate to="/pipelines" replace />} />
        {routes.map(({ page, Content }) => (
          <Route
            key={page.path}
            path={page.path}
            element={
              <Place page={page}>
                <Content />
              </Place>
            }
          />
        ))}
        <Route path="*" element={<NotFound />} />
      </Route>
    </Routes>
  )
}

/** Gives a page its title and breadcrumbs, and shows it to those who may see it. */
function Place({ page, children }: { page: PageEntry; children: ReactNode }) {
  const { t } = useTranslation()
  const parameters = useParams()
  const role = useRole()
  const parents = parentsOf(page).map((parent) => ({ title: t(parent.title), to: linkOf(parent, parameters) }))
  const allowed = includes(role, page.role ?? 'viewer')
  return (
    <PagePlace value={{ title: t(page.title), parents }}>
      {allowed ? (
        children
      ) : (
        <Page>
          <Empty title={t('noPermission.title')} hint={t('noPermission.hint')} />
        </Page>
      )}
    </PagePlace>
  )
}

function NotFound() {
  const { t } = useTranslation()
  return (
    <Page title={t('notFound.title')}>
      <Anchor component={Link} to="/pipelines">
        {t('notFound.back')}
      </Anchor>
    </Page>
  )
}
