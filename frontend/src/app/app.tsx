import { MantineProvider } from '@mantine/core'
import { Notifications } from '@mantine/notifications'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { setNonce } from 'get-nonce'
import { BrowserRouter } from 'react-router'

import { AppRoutes } from '@/app/routes'
import { theme } from '@/app/theme'
import { Problem } from '@/lib/api/problem'
import { PreferencesProvider } from '@/lib/preferences'

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // An answer of the server does not change by asking again at once; a lost connection may.
      retry: (failures, error) => failures < 3 && (!(error instanceof Problem) || error.status >= 500),
      refetchOnWindowFocus: true,
    },
  },
})

const nonce = () => document.querySelector<HTMLMetaElement>('meta[name=csp-nonce]')?.content ?? ''
setNonce(nonce()) // dialogs that lock the page's scrolling ask here

export function App() {
  return (
    <MantineProvider theme={theme} defaultColorScheme="auto" getStyleNonce={nonce}>
      <Notifications position="bottom-right" />
      <QueryClientProvider client={queries}>
        <PreferencesProvider>
          <BrowserRouter>
            <AppRoutes />
          </BrowserRouter>
        </PreferencesProvider>
      </QueryClientProvider>
    </MantineProvider>
  )
}
