import { expect, test } from 'vitest'

import formsPtBR from '@/locales/forms.pt-BR.json'

import { loadServerTexts, serverTextsLoaded, translator } from './texts'

const t = translator({
  'HTTP method.': 'Método HTTP.',
  'At most {{n}} items.': 'No máximo {{n}} itens.',
  'At most {{n}} items, not {{actual}} items.': 'No máximo {{n}} itens; tem {{actual}}.',
  'Path with {{order.id}}.': 'Caminho com {{order.id}}.',
})

test('a text is looked up by its English words, and stays English where it has no translation', () => {
  expect(t('HTTP method.')).toBe('Método HTTP.')
  expect(t(' HTTP method. ')).toBe('Método HTTP.')
  expect(t('Nobody translated this.')).toBe('Nobody translated this.')
  expect(t('Path with {{order.id}}.')).toBe('Caminho com {{order.id}}.')
})

test('a placeholder stands for any words, and the longest text wins', () => {
  expect(t('At most 3 items.')).toBe('No máximo 3 itens.')
  expect(t('At most 3 items, not 5 items.')).toBe('No máximo 3 itens; tem 5.')
})

test('a translation uses no placeholder that its English text lacks', () => {
  const names = (text: string) => [...text.matchAll(/{{\w+}}/g)].map(([placeholder]) => placeholder)
  for (const [english, text] of Object.entries(formsPtBR)) expect(names(english)).toEqual(expect.arrayContaining(names(text)))
})

test('a catalogue that cannot be loaded holds nothing up', async () => {
  loadServerTexts('pt-BR', Promise.reject(new Error('The file is gone.')))
  await expect(serverTextsLoaded()).resolves.toBeUndefined()
})
