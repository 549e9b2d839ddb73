import { createTheme, MantineProvider, mergeThemeOverrides } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { setNonce } from 'get-nonce'
import { useNotifications } from '@mantine/notifications'
import { lazy, Suspense, useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { createBrowserRouter } from 'react-router'
import { RouterProvider } from 'react-router/dom'

import { AppRoutes } from '@/app/routes'
import { cssVariables, theme } from '@/app/theme'
import { mayPass } from '@/lib/api/problem'
import { PreferencesProvider } from '@/lib/preferences'

const Notifications = lazy(async () => ({ default: (await import('@/app/notifications')).Notifications }))

/** They are loaded for the first message that they are to show. */
function Toasts() {
  const isWanted = useNotifications().notifications.length > 0
  const [isLoaded, setLoaded] = useState(false)
  if (isWanted && !isLoaded) setLoaded(true)
  return (
    isLoaded && (
      <Suspense>
        <Notifications position="bottom-right" />
      </Suspense>
    )
  )
}

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (failures, error) => failures < 3 && mayPass(error),
      refetchOnWindowFocus: true,
    },
  },
})

// One route: the pages stand in a table of their own. Only a router of this kind can hold somebody back from leaving.
const router = createBrowserRouter([{ path: '*', element: <AppRoutes /> }])

const nonce = () => document.querySelector<HTMLMetaElement>('meta[name=csp-nonce]')?.content ?? ''
setNonce(nonce()) // dialogs that lock the page's scrolling ask here

/** The theme, in which the buttons that close a dialog have a name. */
function useNamedTheme() {
  const { t } = useTranslation()
  return useMemo(() => {
    const named = { defaultProps: { closeButtonProps: { 'aria-label': t('common.close') } } }
    return mergeThemeOverrides(theme, createTheme({ components: { Modal: named, Drawer: named } }))
  }, [t])
}

export function App() {
  return (
    <MantineProvider theme={useNamedTheme()} cssVariablesResolver={cssVariables} defaultColorScheme="auto" getStyleNonce={nonce}>
      <Toasts />
      <QueryClientProvider client={queries}>
        <PreferencesProvider>
          <RouterProvider router={router} />
        </PreferencesProvider>
      </QueryClientProvider>
    </MantineProvider>
  )
}
