import { MantineProvider } from '@mantine/core'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { Link, MemoryRouter, Route, Routes } from 'react-router'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'

import '@/lib/i18n'

import { LoadedPage, Page } from './page'
import type { Query } from './states'

beforeEach(() => {
  vi.stubGlobal('scrollTo', vi.fn())
})

afterEach(cleanup)

function Filled() {
  return <Page title="Filled">{null}</Page>
}

const consoleWith = (query: Query<string>) => (
  <MantineProvider env="test">
    <MemoryRouter>
      <input aria-label="Search" />
      <Link to="/overview">Overview</Link>
      <Routes>
        <Route path="/" element={null} />
        <Route path="/overview" element={<LoadedPage query={query}>{() => <Filled />}</LoadedPage>} />
      </Routes>
    </MemoryRouter>
  </MantineProvider>
)

const loading: Query<string> = { data: undefined, error: null, refetch: () => undefined }

function openOverview() {
  const { rerender } = render(consoleWith(loading))
  fireEvent.click(screen.getByRole('link', { name: 'Overview' }))
  expect(document.activeElement).toBe(screen.getByRole('heading', { level: 1 }))
  return () => rerender(consoleWith({ ...loading, data: 'all' }))
}

test('the focus is on the heading, also of the page that the data bring', () => {
  const load = openOverview()
  load()
  expect(document.activeElement).toBe(screen.getByRole('heading', { name: 'Filled' }))
})

test('the data that come do not take the focus from who has gone on', () => {
  const load = openOverview()
  screen.getByRole('textbox').focus()
  load()
  expect(screen.getByRole('heading', { name: 'Filled' })).toBeTruthy()
  expect(document.activeElement).toBe(screen.getByRole('textbox'))
})
