import { expect, test } from 'vitest'

import en from './en.json'

const sources = import.meta.glob<string>(['/src/**/*.{ts,tsx}', '!/src/**/*.test.{ts,tsx}', '!/src/lib/api/schema.d.ts'], {
  query: '?raw',
  import: 'default',
  eager: true,
})

function keysOf(node: object, path = ''): string[] {
  return Object.entries(node).flatMap(([name, value]: [string, unknown]) =>
    typeof value === 'object' && value !== null ? keysOf(value, `${path}${name}.`) : [`${path}${name}`],
  )
}

/** A key as the code has it: without the ending by which i18next chooses a plural. */
const base = (key: string) => key.replace(/_(zero|one|two|few|many|other)$/, '')

test('no text is left whose page is gone', () => {
  const text = Object.values(sources).join('\n')
  const named = new Set([...text.matchAll(/'(\w+(?:\.\w+)+)'/g)].map(([, key]) => key))
  // A part of a key may come from what is shown, such as a state.
  const made = [...text.matchAll(/`(\w+\.[^`]*\$\{[^`]*)`/g)].map(([, key = '']) => new RegExp(`^${key.replace(/\$\{[^}]*\}+/g, '[\\w-]+')}$`))
  const unused = keysOf(en)
    .map(base)
    .filter((key) => !named.has(key) && !made.some((pattern) => pattern.test(key)))
  expect(unused).toEqual([])
})
