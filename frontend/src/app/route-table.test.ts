import { matchRoutes } from 'react-router'
import { expect, test } from 'vitest'

import en from '@/locales/en.json'
import ptBR from '@/locales/pt-BR.json'

import { groups, linkOf, pages, parentsOf } from './route-table'

function textAt(catalogue: object, key: string): unknown {
  return key.split('.').reduce<unknown>((node, step) => (node as Record<string, unknown> | undefined)?.[step], catalogue)
}

const keys = [...pages.map(({ title }) => title), ...groups.map((group) => `nav.${group}`)]

test.each(keys)('%s has a text in each language', (key) => {
  expect(textAt(en, key)).toEqual(expect.any(String))
  expect(textAt(ptBR, key)).toEqual(expect.any(String))
})

test('paths differ, and what stands in a group has an icon', () => {
  expect(new Set(pages.map(({ path }) => path)).size).toBe(pages.length)
  expect(pages.filter(({ group, icon }) => Boolean(group) !== Boolean(icon))).toEqual([])
  expect(groups.filter((group) => !pages.some((page) => page.group === group))).toEqual([])
})

test.each(pages)('$path can be loaded', async ({ load }) => {
  expect(await load()).toEqual(expect.any(Function))
}, 60_000)

test('the page of an address is the one that names it most exactly', () => {
  const routes = pages.map(({ path }) => ({ path }))
  const pathOf = (address: string) => matchRoutes(routes, address)?.[0]?.route.path
  expect(pathOf('/pipelines/new')).toBe('/pipelines/new')
  expect(pathOf('/pipelines/7/edit')).toBe('/pipelines/:id/edit')
  expect(pathOf('/pipelines/7/outputs')).toBe('/pipelines/:id/:tab?')
})

test('the pages above a page are those that its path begins with', () => {
  const edit = pages.find(({ path }) => path === '/pipelines/:id/edit')
  const links = edit && parentsOf(edit).map((parent) => linkOf(parent, { id: '7' }))
  expect(links).toEqual(['/pipelines', '/pipelines/7'])
})
