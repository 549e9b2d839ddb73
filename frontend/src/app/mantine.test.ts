// @vitest-environment node
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

import { expect, test } from 'vitest'

const sources = import.meta.glob<string>(['/src/**/*.tsx', '!/src/**/*.test.tsx'], { query: '?raw', import: 'default', eager: true })
const styles = join(dirname(createRequire(import.meta.url).resolve('@mantine/core/styles.css')), 'styles')

test('every component of Mantine that is shown has its styles', () => {
  const files = ['./mantine.css', '../components/schema-form/mantine.css']
  const imported = files.map((file) => readFileSync(new URL(file, import.meta.url), 'utf8')).join('')
  const names = Object.values(sources)
    .flatMap((text) => [...text.matchAll(/import \{([^}]*)\} from '@mantine\/core'/g)].flatMap(([, list = '']) => list.split(',')))
    .map((name) => name.trim())
  const missing = [...new Set(names)].filter((name) => existsSync(join(styles, `${name}.css`)) && !imported.includes(`/${name}.css`))
  expect(names).toContain('Button')
  expect(missing).toEqual([])
})
