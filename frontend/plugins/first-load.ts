import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'

import type { Plugin } from 'vite'

/** What a page may load before it is shown, in bytes as gzip sends them. */
export const mostBytes = 330_000

export interface Page {
  path: string
  /** The modules that are imported for it after the entry, below `src` and without their ending. */
  modules: string[]
}

/** The part of a built chunk that says what comes with it. */
export interface Chunk {
  isEntry: boolean
  modules: string[]
  /** The chunks that it imports at once. */
  imports: string[]
  styles: string[]
}

export interface FirstLoad {
  path: string
  bytes: number
}

/** Every page that is signed in stands in it. */
const shell = 'app/shell'
const login: Page = { path: '/login', modules: ['features/session/components/login-page'] }

/** The pages of the route table, read as text, and the sign-in page, which stands in none. */
export function pagesOf(routeTable: string): Page[] {
  const entries = routeTable.matchAll(/\{ path: '([^']+)'.*?import\('@\/([^']+)'\)/g)
  const pages = [...entries].map(([, path = '', module = '']): Page => ({ path, modules: [shell, module] }))
  if (!pages.length) throw new Error('No page was found in the route table.')
  return [login, ...pages]
}

/** What is loaded for each page: the entry, the page's modules, and all that these import at once, with their styles. */
export function firstLoads(pages: Page[], chunks: Map<string, Chunk>, sizeOf: (file: string) => number): FirstLoad[] {
  const names = [...chunks.keys()]
  const entries = names.filter((name) => chunks.get(name)?.isEntry)
  const chunkOf = (module: string) => {
    const found = names.find((name) => chunks.get(name)?.modules.some((id) => id.replace(/\.tsx?$/, '').endsWith(`/src/${module}`)))
    if (found === undefined) throw new Error(`No chunk has the module src/${module}.`)
    return found
  }
  return pages.map(({ path, modules }) => {
    const files = withImports([...entries, ...modules.map(chunkOf)], chunks)
    return { path, bytes: [...files].reduce((sum, file) => sum + sizeOf(file), 0) }
  })
}

function withImports(first: string[], chunks: Map<string, Chunk>): Set<string> {
  const files = new Set<string>()
  const open = [...first]
  for (let name = open.pop(); name !== undefined; name = open.pop()) {
    if (files.has(name)) continue
    files.add(name)
    const { imports = [], styles = [] } = chunks.get(name) ?? {}
    open.push(...imports, ...styles)
  }
  return files
}

const kilobytes = (bytes: number) => `${(bytes / 1000).toFixed(1)} kB`

/** The pages with their sizes, the largest first. */
export function tableOf(loads: FirstLoad[]): string {
  const width = Math.max(...loads.map(({ path }) => path.length))
  const rows = [...loads].sort((one, other) => other.bytes - one.bytes)
  return rows.map(({ path, bytes }) => `${path.padEnd(width)}  ${kilobytes(bytes).padStart(9)}`).join('\n')
}

/** Why a build is refused; nothing if every page keeps to the limit. */
export function refusalOf(loads: FirstLoad[]): string | undefined {
  const large = loads.filter(({ bytes }) => bytes > mostBytes)
  if (!large.length) return undefined
  return `These pages load more than ${kilobytes(mostBytes)} (gzip) before they are shown; load by import() what is not needed at first:\n${tableOf(large)}`
}

/** Prints what each page loads before it is shown, as gzip sends it, and fails the build where that is too much. */
export function firstLoad(): Plugin {
  let root = ''
  let say: (text: string) => void
  return {
    name: 'first-load',
    apply: 'build',
    configResolved(config) {
      root = config.root
      say = (text) => config.logger.info(text)
    },
    generateBundle: {
      // After all that still changes the files.
      order: 'post',
      handler(_, bundle) {
        const outputs = Object.values(bundle)
        const chunks = new Map(
          outputs.flatMap((output): [string, Chunk][] => {
            if (output.type !== 'chunk') return []
            const { fileName, isEntry, moduleIds: modules, imports, viteMetadata } = output
            return [[fileName, { isEntry, modules, imports, styles: [...(viteMetadata?.importedCss ?? [])] }]]
          }),
        )
        const contents = new Map(outputs.map((output) => [output.fileName, output.type === 'chunk' ? output.code : output.source]))
        const sizes = new Map<string, number>()
        const sizeOf = (file: string) => {
          const size = sizes.get(file) ?? gzipSync(contents.get(file) ?? '', { level: 9 }).length
          sizes.set(file, size)
          return size
        }
        const pages = pagesOf(readFileSync(join(root, 'src/app/route-table.ts'), 'utf8'))
        const loads = firstLoads(pages, chunks, sizeOf)
        say(`\nLoaded before each page is shown (gzip):\n${tableOf(loads)}`)
        const refusal = refusalOf(loads)
        if (refusal) this.error(refusal)
      },
    },
  }
}
