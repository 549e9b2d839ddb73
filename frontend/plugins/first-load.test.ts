// @vitest-environment node
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { expect, test } from 'vitest'

import { firstLoads, mostBytes, pagesOf, refusalOf, tableOf, type Chunk } from './first-load'

const chunk = (modules: string[], more: Partial<Chunk> = {}): Chunk => ({
  isEntry: false,
  modules: modules.map((module) => `/console/src/${module}`),
  imports: [],
  styles: [],
  ...more,
})

const chunks = new Map<string, Chunk>([
  ['index.js', chunk(['main.tsx'], { isEntry: true, imports: ['shared.js'], styles: ['index.css'] })],
  ['shared.js', chunk(['lib/format.ts'], { imports: ['index.js'] })],
  ['shell.js', chunk(['app/shell.tsx'], { imports: ['shared.js'] })],
  ['jobs.js', chunk(['features/jobs/jobs-page.tsx'], { imports: ['table.js'] })],
  ['table.js', chunk(['components/table.tsx'], { imports: ['shared.js'], styles: ['table.css'] })],
  ['unused.js', chunk(['features/jobs/jobs-page-dialog.tsx'])],
])
const sizes: Record<string, number> = { 'index.js': 1, 'shared.js': 10, 'index.css': 100, 'shell.js': 1000, 'jobs.js': 10_000, 'table.js': 100_000, 'table.css': 1_000_000 }
const sizeOf = (file: string) => sizes[file] ?? 7

test('a page counts the entry, its own chunks, and what these import at once, each once and with styles', () => {
  const pages = [
    { path: '/jobs', modules: ['app/shell', 'features/jobs/jobs-page'] },
    { path: '/login', modules: [] },
  ]
  expect(firstLoads(pages, chunks, sizeOf)).toEqual([
    { path: '/jobs', bytes: 1_111_111 },
    { path: '/login', bytes: 111 },
  ])
})

test('a page whose module is in no chunk is a fault, not a small page', () => {
  expect(() => firstLoads([{ path: '/gone', modules: ['features/gone'] }], chunks, sizeOf)).toThrow('src/features/gone')
})

test('every page of the route table is found', () => {
  const table = readFileSync(join(import.meta.dirname, '../src/app/route-table.ts'), 'utf8')
  const pages = pagesOf(table)
  expect(pages).toHaveLength((table.match(/\bpath: '/g) ?? []).length + 1)
  expect(pages).toContainEqual({ path: '/alerts', modules: ['app/shell', 'features/alerts/components/alerts-page'] })
  expect(() => pagesOf('')).toThrow()
})

test('the largest page stands first, and those above the limit are named', () => {
  const small = { path: '/login', bytes: mostBytes }
  const large = { path: '/pipelines', bytes: mostBytes + 1 }
  expect(tableOf([{ path: '/a', bytes: 1234 }, small])).toBe('/login   330.0 kB\n/a         1.2 kB')
  expect(refusalOf([small])).toBeUndefined()
  expect(refusalOf([small, large])).toMatch(/\/pipelines/)
  expect(refusalOf([small, large])).not.toMatch(/\/login/)
})
