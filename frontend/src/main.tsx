import '@/app/mantine.css'
import '@/app/global.css'

import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'

import { App } from '@/app/app'
import { showPreferredLanguage } from '@/lib/i18n'

const root = document.getElementById('root')
if (!root) throw new Error('The page has no root element.')
await showPreferredLanguage()
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
)
