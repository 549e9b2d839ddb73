import { Checkbox, UnstyledButton } from '@mantine/core'
import { IconArrowDown, IconArrowUp } from '@tabler/icons-react'
import { Fragment, lazy, Suspense, useCallback, useMemo, useRef, type ComponentType } from 'react'
import { useTranslation } from 'react-i18next'
import { useSearchParams } from 'react-router'

import { toggled, toggledThrough } from './choosing'
import { DataRow, useShown, type Choose, type Column, type LongBodyProps, type TableProps } from './data-row'
import classes from './data-table.module.css'
import { sorted, sortingFrom, textOf, type Sorting } from './sorting'

export type { Column } from './data-row'

/** Loaded with the first list that is long. */
const LongBody = lazy(async () => ({ default: (await import('./long-body')).LongBody }))

/** Rows that are all kept in the page. */
const longest = 60

/** Every list of the console: a table, whose rows are cards on a narrow screen, so that nothing is cut. */
export function DataTable<Row>(props: TableProps<Row>) {
  const { label, rows, columns, keyOf, actions, detail, selection, onShow, isFramed = false, isSmall = false } = props
  const { t } = useTranslation()
  const [sorting, setSorting] = useSorting()
  const ordered = useMemo(() => {
    const column = columns.find(({ name }) => name === sorting?.name)
    return column?.sortBy && sorting ? sorted(rows, column.sortBy, sorting.descends) : rows
  }, [rows, columns, sorting])
  const isLong = rows.length > longest && !detail
  useShown(isLong ? [] : ordered, keyOf, isLong ? undefined : onShow)
  const switched = useRef<string | null>(null)
  const choose: Choose = (key, through) => {
    const from = switched.current
    switched.current = key
    if (!selection) return
    const { chosen, onChange } = selection
    onChange(through && from !== null ? toggledThrough(chosen, ordered.map(keyOf), from, key) : toggled(chosen, key))
  }
  // What is loaded later does not keep the type of its rows.
  const Long = LongBody as ComponentType<LongBodyProps<Row>>
  const span = columns.length + (actions ? 1 : 0) + (selection ? 1 : 0)
  return (
    <table
      className={[classes.table, isFramed && classes.framed, !isSmall && classes.cards].filter(Boolean).join(' ')}
      role="table"
      aria-label={label}
      data-list={isFramed || undefined}
      aria-rowcount={isLong ? rows.length + 1 : undefined}
    >
      <thead role="rowgroup">
        <tr role="row">
          {selection && (
            <th role="columnheader" className={classes.choice}>
              <ChooseAll keys={rows.map(keyOf)} {...selection} />
            </th>
          )}
          {columns.map((column) => (
            <Head key={column.name} column={column} sorting={sorting} onSort={setSorting} />
          ))}
          {actions && <th role="columnheader" aria-label={t('table.actions')} />}
        </tr>
      </thead>
      {isLong ? (
        <Suspense fallback={<tbody role="rowgroup" aria-busy />}>
          <Long {...props} rows={ordered} span={span} choose={choose} />
        </Suspense>
      ) : (
        <tbody role="rowgroup">
          {ordered.map((row) => {
            const below = detail?.(row)
            return (
              <Fragment key={keyOf(row)}>
                <DataRow {...props} row={row} choose={choose} />
                {below && (
                  <tr role="row" className={classes.detail}>
                    <td role="cell" className={classes.wide} colSpan={span}>
                      {below}
                    </td>
                  </tr>
                )}
              </Fragment>
            )
          })}
        </tbody>
      )}
    </table>
  )
}

/** The order that the user chose, kept in the address so that it can be shared and gone back to. */
function useSorting(): [Sorting | null, (sorting: Sorting) => void] {
  const [parameters, setParameters] = useSearchParams()
  const text = parameters.get('sort')
  const sort = useCallback(
    (sorting: Sorting) =>
      setParameters(
        (before) => {
          const next = new URLSearchParams(before)
          next.set('sort', textOf(sorting))
          return next
        },
        { replace: true },
      ),
    [setParameters],
  )
  return [useMemo(() => sortingFrom(text), [text]), sort]
}

function ChooseAll({ keys, chosen, onChange }: { keys: string[]; chosen: Set<string>; onChange: (chosen: Set<string>) => void }) {
  const { t } = useTranslation()
  const all = keys.length > 0 && keys.every((key) => chosen.has(key))
  return (
    <Checkbox
      aria-label={t('table.chooseAll')}
      checked={all}
      indeterminate={!all && chosen.size > 0}
      onChange={() => onChange(new Set(all ? [] : keys))}
    />
  )
}

interface HeadProps<Row> {
  column: Column<Row>
  sorting: Sorting | null
  onSort: (sorting: Sorting) => void
}

function Head<Row>({ column, sorting, onSort }: HeadProps<Row>) {
  const descends = column.sortBy && sorting?.name === column.name ? sorting.descends : null
  const Icon = descends ? IconArrowDown : IconArrowUp
  return (
    <th
      role="columnheader"
      className={column.isNumber ? classes.right : undefined}
      aria-sort={descends === null ? undefined : descends ? 'descending' : 'ascending'}
    >
      {column.sortBy ? (
        <UnstyledButton
          className={classes.sort}
          // Numbers are first wanted with the largest on top.
          onClick={() => onSort({ name: column.name, descends: descends === null ? column.isNumber === true : !descends })}
        >
          {column.title}
          {descends !== null && <Icon size={12} aria-hidden />}
        </UnstyledButton>
      ) : (
        column.title
      )}
    </th>
  )
}
