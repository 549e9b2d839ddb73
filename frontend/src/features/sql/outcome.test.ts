import { expect, test } from 'vitest'

import type { Line } from '@/features/sql/api/sql'

import { mostRows, withLine, withoutOpen, type Outcome } from './outcome'

const message = (text: string) => ({ type: 'message', statement: '', message: text, warnings: [] }) as Line
const reading = { type: 'reading', statement: 'SELECT', message: '', warnings: [], id: 'PUSH_1', columns: [] } as Line
const rows = (...values: number[]) => ({ type: 'rows', rows: values.map((value) => [value]) }) as Line
const after = (...lines: Line[]) => lines.reduce(withLine, [] as Outcome[])

test('rows belong to the query before them until it ends', () => {
  const [made, query, dropped] = after(message('Created.'), reading, rows(1), rows(), rows(2, 3), message('3 rows.'), message('Dropped.'))
  expect(made).toMatchObject({ kind: 'entity', entity: { message: 'Created.' } })
  expect(query).toMatchObject({ kind: 'reading', rows: [[1], [2], [3]], count: 3, ended: '3 rows.' })
  expect(dropped).toMatchObject({ kind: 'entity', entity: { message: 'Dropped.' } })
})

test('the newest rows are kept, and all are counted', () => {
  const many = Array.from({ length: mostRows }, (_, number) => number)
  const [query] = after(reading, rows(...many), rows(-1))
  expect(query).toMatchObject({ count: mostRows + 1, ended: null })
  expect(query?.kind === 'reading' && [query.rows.length, query.rows[0], query.rows.at(-1)]).toEqual([mostRows, [1], [-1]])
})

test('a failure and a reader who leaves end the query', () => {
  const failure = { type: 'error', message: 'No.', status: 502, line: 1, column: 1, expected: [], properties: {}, statement: '' } as Line
  expect(after(reading, failure)).toMatchObject([{ ended: '' }, { kind: 'failure' }])
  expect(withoutOpen(after(reading, rows(1)))).toMatchObject([{ rows: [[1]], ended: '' }])
})
