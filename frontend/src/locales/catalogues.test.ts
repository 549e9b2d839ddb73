import { expect, test } from 'vitest'

import en from './en.json'
import ptBR from './pt-BR.json'

function texts(node: object, path = ''): [string, string][] {
  return Object.entries(node).flatMap(([name, value]: [string, unknown]): [string, string][] =>
    typeof value === 'object' && value !== null ? texts(value, `${path}${name}.`) : [[`${path}${name}`, String(value)]],
  )
}

const placeholders = (text: string) => [...text.matchAll(/{{\w+(, number)?}}/g)].map(([placeholder]) => placeholder).sort()

test('both languages say the same things with the same placeholders', () => {
  const english = new Map(texts(en))
  const portuguese = new Map(texts(ptBR))
  expect([...portuguese.keys()].sort()).toEqual([...english.keys()].sort())
  for (const [key, text] of english) expect([key, placeholders(portuguese.get(key) ?? '')]).toEqual([key, placeholders(text)])
})
