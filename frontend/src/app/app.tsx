import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { setNonce } from 'get-nonce'
import { useNotifications } from '@mantine/notifications'
import { lazy, Suspense, useState } from 'react'
import { createBrowserRouter } from 'react-router'
import { RouterProvider } from 'react-router/dom'

import { AppRoutes } from '@/app/routes'
import { cssVariables, theme } from '@/app/theme'
import { Problem } from '@/lib/api/problem'
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
      // An answer of the server does not change by asking again at once; a lost connection may.
      retry: (failures, error) => failures < 3 && (!(error instanceof Problem) || error.status >= 500),
      refetchOnWindowFocus: true,
    },
  },
})

// One route: the pages stand in a table of their own. Only a router of this kind can hold somebody back from leaving.
const router = createBrowserRouter([{ path: '*', element: <AppRoutes /> }])

const nonce = () => document.querySelector<HTMLMetaElement>('meta[name=csp-nonce]')?.content ?? ''
setNonce(nonce()) // dialogs that lock the page's scrolling ask here

export function App() {
  return (
    <MantineProvider theme={theme} cssVariablesResolver={cssVariables} defaultColorScheme="auto" getStyleNonce={nonce}>
      <Toasts />
      <QueryClientProvider client={queries}>
        <PreferencesProvider>
          <RouterProvider router={router} />
        </PreferencesProvider>
      </QueryClientProvider>
    </MantineProvider>
  )
}
