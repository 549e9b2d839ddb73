import { Checkbox } from '@mantine/core'
import { memo, useEffect, type MouseEvent, type ReactNode } from 'react'

import classes from './data-table.module.css'
import type { SortKey } from './sorting'

export interface Column<Row> {
  /** Unique among the columns of a table. */
  name: string
  title: string
  cell: (row: Row) => ReactNode
  /** Makes the column sortable. */
  sortBy?: (row: Row) => SortKey
  /** Numbers stand at the right. */
  isNumber?: boolean
  /** Never broken into lines, such as a time. */
  isStill?: boolean
  /** In a card, below its title instead of beside it: long text. */
  isWide?: boolean
  /** What identifies the row: the first line of a card. */
  isLead?: boolean
}

interface Selection<Row> {
  chosen: Set<string>
  onChange: (chosen: Set<string>) => void
  label: (row: Row) => string
}

export interface TableProps<Row> {
  label: string
  rows: Row[]
  columns: Column<Row>[]
  keyOf: (row: Row) => string
  /** Opens the row. There must also be a control in the row that does it, for the keyboard. */
  onOpen?: (row: Row) => void
  /** What one may do with the row, at its end. */
  actions?: (row: Row) => ReactNode
  /** Shown below the row. */
  detail?: (row: Row) => ReactNode
  selection?: Selection<Row>
  /** Told which rows exist in the page, once these have been the same for a moment: those on screen and some around. */
  onShow?: (rows: Row[]) => void
  /** On its own on a page, instead of in a card. */
  isFramed?: boolean
  /** Few and short columns, for which a narrow screen has room: its rows do not become cards. */
  isSmall?: boolean
}

export interface LongBodyProps<Row> extends TableProps<Row> {
  /** How many columns there are. */
  span: number
  choose: Choose
}

/** Switches whether a row is chosen; with `through` also all rows from the one that was switched before. */
export type Choose = (key: string, through: boolean) => void

export interface RowProps<Row> extends Omit<TableProps<Row>, 'rows' | 'onShow'> {
  row: Row
  choose: Choose
  /** Its place in a long list. */
  index?: number
  measure?: (element: Element | null) => void
}

function AnyRow<Row>({ row, index, measure, columns, keyOf, onOpen, actions, selection, choose }: RowProps<Row>) {
  const key = keyOf(row)
  return (
    <tr
      role="row"
      ref={measure}
      data-row
      data-index={index}
      aria-rowindex={index === undefined ? undefined : index + 2}
      className={onOpen && classes.opens}
      onClick={onOpen && ((event) => isOnControl(event) || onOpen(row))}
    >
      {selection && (
        // Otherwise the browser marks the text between two clicks of which the second is with the shift key.
        <td role="cell" className={classes.choice} onMouseDown={(event) => event.shiftKey && event.preventDefault()}>
          <Checkbox
            aria-label={selection.label(row)}
            checked={selection.chosen.has(key)}
            onChange={({ nativeEvent }) => choose(key, (nativeEvent as PointerEvent).shiftKey)}
          />
        </td>
      )}
      {columns.map((column) => {
        const value = column.cell(row)
        return (
          <td key={column.name} role="cell" className={classOf(column)} data-title={column.isLead ? undefined : column.title}>
            {isNothing(value) ? null : <div className={classes.value}>{value}</div>}
          </td>
        )
      })}
      {actions && (
        <td role="cell">
          <div className={classes.actions}>{actions(row)}</div>
        </td>
      )}
    </tr>
  )
}

/** While a list is scrolled, only rows that come into sight are rendered. */
export const DataRow = memo(AnyRow) as typeof AnyRow

/** A cell without a value shows a dash, and is left out of a card. */
function isNothing(value: ReactNode): boolean {
  return value === null || value === undefined || value === '' || value === '–'
}

function classOf<Row>({ isNumber, isStill, isWide, isLead }: Column<Row>): string {
  return [isNumber && classes.right, isStill && classes.still, isWide && classes.wide, isLead && classes.lead].filter(Boolean).join(' ')
}

/** A click on a link or a button of the row is meant for that alone. */
function isOnControl(event: MouseEvent): boolean {
  return (event.target as Element).closest('a, button, input, label') !== null
}

const still = 200

/** Tells which rows exist, once they have stopped changing. */
export function useShown<Row>(rows: Row[], keyOf: (row: Row) => string, onShow: ((rows: Row[]) => void) | undefined) {
  const keys = rows.map(keyOf).join()
  useEffect(() => {
    if (!onShow) return
    const timer = setTimeout(() => onShow(rows), still)
    return () => clearTimeout(timer)
    // The same rows may be other objects after they are loaded again.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [keys, onShow])
}
