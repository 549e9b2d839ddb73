import { DEFAULT_THEME, mergeMantineTheme } from '@mantine/core'
import { expect, test } from 'vitest'

import { cssVariables, theme } from './theme'

function luminance(hex: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5]
    .map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

function contrast(a: string, b: string): number {
  const [lighter = 0, darker = 0] = [luminance(a), luminance(b)].sort((x, y) => y - x)
  return (lighter + 0.05) / (darker + 0.05)
}

const full = mergeMantineTheme(DEFAULT_THEME, theme)
const { light, dark } = cssVariables(full) as Record<'light' | 'dark', Record<string, string>>
const slate = full.colors.dark
const texts = ['dimmed', 'placeholder', 'error'].map((name) => `--mantine-color-${name}`)

test.each(texts)('%s can be read on every surface of both themes', (name) => {
  for (const surface of ['#ffffff', light['--page-background']!]) expect(contrast(light[name]!, surface)).toBeGreaterThan(4.5)
  for (const surface of [slate[6], slate[7], dark['--page-background']!]) expect(contrast(dark[name]!, surface)).toBeGreaterThan(4.5)
})

test.each(['red', 'orange', 'yellow', 'green', 'blue'])('a badge in %s can be read', (name) => {
  expect(contrast(light[`--mantine-color-${name}-light-color`]!, full.colors[name]![1])).toBeGreaterThan(4.5)
})

test.each(['red', 'orange', 'yellow', 'green', 'blue', 'gray', 'river'])('a badge in %s can be read in the dark theme', (name) => {
  expect(contrast(dark[`--mantine-color-${name}-light-color`]!, dark[`--mantine-color-${name}-light`]!)).toBeGreaterThan(7)
})

test('white text can be read on the accent and on red', () => {
  for (const name of ['river', 'red']) expect(contrast('#ffffff', full.colors[name]![8])).toBeGreaterThan(4.5)
})
