import { MantineProvider } from '@mantine/core'
import { act, cleanup, fireEvent, render, screen } from '@testing-library/react'
import { useState, type ReactNode } from 'react'
import { MemoryRouter } from 'react-router'
import { afterEach, expect, test, vi } from 'vitest'

import '@/lib/i18n'

import { DataTable } from './data-table'

afterEach(() => {
  cleanup()
  vi.useRealTimers()
})

interface Row {
  name: string
  size: number
}

const rows: Row[] = ['a', 'b', 'c', 'd'].map((name, index) => ({ name, size: 10 - index }))
const nameOf = ({ name }: Row) => name

function Table({ shown = rows, onShow }: { shown?: Row[]; onShow?: (rows: Row[]) => void }) {
  const [chosen, setChosen] = useState(new Set<string>())
  return (
    <>
      <output>{[...chosen].sort().join('')}</output>
      <DataTable
        label="Rows"
        rows={shown}
        keyOf={nameOf}
        onShow={onShow}
        selection={{ chosen, onChange: setChosen, label: ({ name }) => `Select ${name}` }}
        columns={[
          { name: 'name', title: 'Name', cell: nameOf },
          { name: 'size', title: 'Size', cell: ({ size }) => size, sortBy: ({ size }) => size },
        ]}
      />
    </>
  )
}

function show(table: ReactNode, address = '/') {
  return render(
    <MantineProvider env="test">
      <MemoryRouter initialEntries={[address]}>{table}</MemoryRouter>
    </MantineProvider>,
  )
}

const box = (name: string) => screen.getByRole('checkbox', { name: `Select ${name}` })
const chosen = () => screen.getByRole('status').textContent

test('the shift key chooses all rows up to this one, and gives them up again', () => {
  show(<Table />)
  fireEvent.click(box('b'))
  fireEvent.click(box('d'), { shiftKey: true })
  expect(chosen()).toBe('bcd')
  fireEvent.click(box('c'), { shiftKey: true })
  expect(chosen()).toBe('b')
})

test('the rows between are those of the order that is shown', () => {
  show(<Table shown={[...rows.slice(2), ...rows.slice(0, 2)]} />, '/?sort=size')
  expect(screen.getAllByRole('row').slice(1).map((row) => row.textContent)).toEqual(['d7', 'c8', 'b9', 'a10'])
  fireEvent.click(box('d'))
  fireEvent.click(box('b'), { shiftKey: true })
  expect(chosen()).toBe('bcd')
})

test('all are chosen at once', () => {
  show(<Table />)
  fireEvent.click(screen.getByRole('checkbox', { name: 'Select all shown' }))
  expect(chosen()).toBe('abcd')
})

test('the page is told of the rows that exist, once for each change of them', () => {
  vi.useFakeTimers()
  const onShow = vi.fn()
  const { rerender } = show(<Table onShow={onShow} />)
  const again = (shown: Row[]) =>
    rerender(
      <MantineProvider env="test">
        <MemoryRouter>
          <Table shown={shown} onShow={onShow} />
        </MemoryRouter>
      </MantineProvider>,
    )
  act(() => void vi.advanceTimersByTime(1000))
  again([...rows])
  act(() => void vi.advanceTimersByTime(1000))
  again(rows.slice(1))
  act(() => void vi.advanceTimersByTime(1000))
  expect(onShow.mock.calls.map(([shown]: Row[][]) => shown?.map(nameOf).join(''))).toEqual(['abcd', 'bcd'])
})

test('a column that cannot be sorted shows no order, though the address names it', () => {
  show(<Table />, '/?sort=name')
  expect(screen.getByRole('columnheader', { name: 'Name' }).getAttribute('aria-sort')).toBeNull()
})
