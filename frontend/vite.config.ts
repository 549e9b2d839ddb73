import { fileURLToPath } from 'node:url'

import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

const console = 'http://127.0.0.1:8000'

export default defineConfig({
  base: '/static/',
  plugins: [react()],
  resolve: { alias: { '@': fileURLToPath(new URL('./src', import.meta.url)) } },
  build: { chunkSizeWarningLimit: 1500 },
  server: {
    proxy: { '/api': console, '/health': console, '/ws': { target: console, ws: true } },
  },
  // The form library's theme imports files without their extension, which only Vite resolves.
  test: { environment: 'jsdom', setupFiles: ['src/test-setup.ts'], server: { deps: { inline: ['@rjsf/mantine'] } } },
})
