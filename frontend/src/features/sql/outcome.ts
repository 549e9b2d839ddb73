import type { Failure, Line } from '@/features/sql/api/sql'

/** Rows of a query that are kept on the page. */
export const mostRows = 500

type Entity = Exclude<Line, { type: 'reading' } | { type: 'rows' } | { type: 'error' }>
type Reading = Extract<Line, { type: 'reading' }>

/** What one statement has answered so far. */
export type Outcome =
  | { kind: 'entity'; entity: Entity }
  | { kind: 'reading'; reading: Reading; rows: unknown[][]; count: number; ended: string | null }
  | { kind: 'failure'; failure: Failure }

/** The outcomes once another line has come. */
export function withLine(outcomes: Outcome[], line: Line): Outcome[] {
  const last = outcomes.at(-1)
  const open = last?.kind === 'reading' && last.ended === null ? last : null
  switch (line.type) {
    case 'reading':
      return [...outcomes, { kind: 'reading', reading: line, rows: [], count: 0, ended: null }]
    case 'rows': {
      if (!open || !line.rows.length) return outcomes
      const rows = [...open.rows, ...(line.rows)].slice(-mostRows)
      return [...outcomes.slice(0, -1), { ...open, rows, count: open.count + line.rows.length }]
    }
    case 'error':
      return [...withoutOpen(outcomes), { kind: 'failure', failure: line }]
    default:
      if (open) return [...outcomes.slice(0, -1), { ...open, ended: line.message }]
      return [...outcomes, { kind: 'entity', entity: line }]
  }
}

/** The outcomes after the reader has left. */
export function withoutOpen(outcomes: Outcome[]): Outcome[] {
  return outcomes.map((one) => (one.kind === 'reading' && one.ended === null ? { ...one, ended: '' } : one))
}
