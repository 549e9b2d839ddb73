import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'

import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

import { firstLoad } from './plugins/first-load.ts'

const console = 'http://127.0.0.1:8000'
const outDir = fileURLToPath(new URL('./dist', import.meta.url))
const compressible = /\.(js|css|svg)$/
const brotliQuality = { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } }

/** Writes `.gz` and `.br` beside each file; the console's server sends what the browser accepts. */
const compressed = {
  name: 'compressed',
  apply: 'build' as const,
  closeBundle() {
    const names = readdirSync(outDir, { recursive: true, encoding: 'utf8' }).filter((name) => compressible.test(name))
    for (const path of names.map((name) => join(outDir, name))) {
      const content = readFileSync(path)
      writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }))
      writeFileSync(`${path}.br`, brotliCompressSync(content, brotliQuality))
    }
  },
}

export default defineConfig({
  base: '/static/',
  plugins: [react(), firstLoad(), compressed],
  resolve: {
    alias: {
      '@': fileURLToPath(new URL('./src', import.meta.url)),
      'markdown-to-jsx/react': fileURLToPath(new URL('./src/components/schema-form/plain-text.tsx', import.meta.url)),
    },
  },
  build: {
    outDir,
    chunkSizeWarningLimit: 1500,
    // What most pages share is one file: a hundred small ones are compressed worse by a tenth.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: 'shared', minShareCount: 12 }] } } },
  },
  server: {
    proxy: { '/api': console, '/health': console, '/ws': { target: console, ws: true } },
  },
  // The form library's theme imports files without their extension, which only Vite resolves.
  // A test may take as long as the machine needs. Files share one page: making a new one for each would take most of the time.
  test: { environment: 'jsdom', isolate: false, testTimeout: 60_000, setupFiles: ['src/test-setup.ts'], server: { deps: { inline: ['@rjsf/mantine'] } } },
})
