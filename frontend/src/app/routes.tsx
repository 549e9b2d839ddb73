import { Button } from '@mantine/core'
import { Fragment, lazy, Suspense, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, Route, Routes, useParams } from 'react-router'

import { linkOf, pages, parentsOf, type PageEntry } from '@/app/route-table'
import { Page, PagePlace } from '@/components/page'
import { Empty } from '@/components/states'
import { RequireSession } from '@/features/session/components/require-session'
import { includes, useRole } from '@/lib/queries/session'

const routes = pages.map((page) => ({ page, Content: lazy(async () => ({ default: await retrying(page.load) })) }))

/** Who is not signed in does not need it: the sign-in page is shown before it is loaded. */
const Shell = lazy(async () => ({ default: await retrying(async () => (await import('@/app/shell')).Shell) }))

const LoginPage = lazy(async () => ({ default: await retrying(async () => (await import('@/features/session/components/login-page')).LoginPage) }))

const pause = 5000

/** Loads again what a lost connection kept from loading, until the server can be reached. */
async function retrying<T>(load: () => Promise<T>, waits = [500, 2000, pause]): Promise<T> {
  try {
    return await load()
  } catch (error) {
    const [wait = pause, ...later] = waits
    if (!waits.length && (await isReachable())) throw error
    await new Promise((resolve) => setTimeout(resolve, wait))
    return retrying(load, later)
  }
}

async function isReachable(): Promise<boolean> {
  return fetch('/health/live').then(
    ({ ok }) => ok,
    () => false,
  )
}

export function AppRoutes() {
  return (
    <Routes>
      <Route
        path="/login"
        element={
          <Suspense>
            <LoginPage />
          </Suspense>
        }
      />
      <Route
        element={
          <RequireSession>
            <Suspense>
              <Shell />
            </Suspense>
          </RequireSession>
        }
      >
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
        // Another object is another page, with nothing typed for the former one; another tab is not.
        <Fragment key={linkOf(page, parameters)}>{children}</Fragment>
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
      <Empty
        title={t('notFound.what')}
        hint={t('notFound.hint')}
        action={
          <Button component={Link} to="/" variant="default">
            {t('notFound.back')}
          </Button>
        }
      />
    </Page>
  )
}
