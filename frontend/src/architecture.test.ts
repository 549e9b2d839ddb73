// @vitest-environment node
import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterEach, beforeEach, expect, test } from 'vitest'

const frontend = fileURLToPath(new URL('..', import.meta.url))
const oxlint = join(frontend, 'node_modules/.bin/oxlint')
const targets = ['app/theme', 'components/figure', 'features/alerts/api/alerts', 'features/jobs/api/jobs', 'lib/format', 'locales/en', 'outside']

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'layers-'))
  for (const name of ['oxlint.config.js', 'package.json', 'tsconfig.json']) await cp(join(frontend, name), join(folder, name))
  await symlink(join(frontend, 'node_modules'), join(folder, 'node_modules'))
  for (const target of targets) await write(`src/${target}.ts`, 'export const value = 1')
})

afterEach(() => rm(folder, { recursive: true }))

async function write(path: string, text: string) {
  await mkdir(dirname(join(folder, path)), { recursive: true })
  await writeFile(join(folder, path), `${text}\n`)
}

/** The files that break a rule, each with the rules. */
async function broken(): Promise<Record<string, string[]>> {
  const run = promisify(execFile)(oxlint, ['-c', 'oxlint.config.js', '--format', 'json', 'src'], { cwd: folder })
  const { stdout } = await run.catch((failed: { stdout: string }) => failed)
  const rules: Record<string, string[]> = {}
  for (const { filename, code } of (JSON.parse(stdout) as { diagnostics: { filename: string; code: string }[] }).diagnostics)
    (rules[filename] ??= []).push(code)
  return rules
}

test('imports that lead upward, sideways or in a circle are found', async () => {
  const wrong = {
    'src/features/alerts/api/sideways.ts': '@/features/jobs/api/jobs',
    'src/features/alerts/api/relative.ts': '../../jobs/api/jobs',
    'src/features/alerts/api/upward.ts': '@/app/theme',
    'src/features/beside.ts': '@/features/jobs/api/jobs',
    'src/components/feature.ts': '@/features/jobs/api/jobs',
    'src/components/word.ts': '@/locales/en',
    'src/lib/component.ts': '@/components/figure',
    'src/locales/upward.ts': '@/lib/format',
    'src/app/outside.ts': '@/outside',
  }
  for (const [path, imported] of Object.entries(wrong)) await write(path, `import { value } from '${imported}'\n\nconsole.log(value)`)
  await write('src/lib/one.ts', "import { two } from '@/lib/two'\n\nexport const one = () => two")
  await write('src/lib/two.ts', "import { one } from '@/lib/one'\n\nexport const two = () => one")
  const layers = Object.fromEntries(Object.keys(wrong).map((path) => [path, ['eslint(no-restricted-imports)']]))
  const circle = { 'src/lib/one.ts': ['import(no-cycle)'], 'src/lib/two.ts': ['import(no-cycle)'] }
  expect(await broken()).toEqual({ ...layers, ...circle })
})

test('imports that lead downward or stay within a feature are allowed', async () => {
  const imported = ['@/components/figure', '@/lib/format', '@/features/alerts/api/alerts']
  await write('src/features/alerts/components/page.ts', imported.map((path) => `import '${path}'`).join('\n'))
  await write('src/features/alerts/api/beside.ts', "import './alerts'")
  await write('src/app/routes.ts', "import '@/features/jobs/api/jobs'\nimport '@/locales/en'")
  await write('src/lib/words.ts', "import '@/locales/en'")
  expect(await broken()).toEqual({})
})

test('a wrong type is found', async () => {
  await write('src/lib/wrong.ts', "export const number: number = 'text'")
  expect(Object.keys(await broken())).toEqual(['src/lib/wrong.ts'])
})
