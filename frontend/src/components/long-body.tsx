import { useWindowVirtualizer } from '@tanstack/react-virtual'
import { useLayoutEffect, useRef, useState } from 'react'

import { DataRow, useShown, type LongBodyProps } from './data-row'
import classes from './data-table.module.css'

const usualHeight = 40

/** Of a long list only the rows near the window exist: 100,000 of them cost no more than these. */
export function LongBody<Row>({ span, ...props }: LongBodyProps<Row>) {
  const { rows, keyOf } = props
  const body = useRef<HTMLTableSectionElement>(null)
  const [top, setTop] = useState(0)
  // What stands above the list may grow or shrink with anything that is rendered; the same number changes nothing.
  // oxlint-disable-next-line react/exhaustive-deps
  useLayoutEffect(() => {
    if (body.current) setTop(Math.round(body.current.getBoundingClientRect().top + window.scrollY))
  })
  const virtualizer = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => usualHeight,
    overscan: 15,
    scrollMargin: top,
    getItemKey: (index) => keyOf(rows[index] as Row),
    measureElement: (element) => element.getBoundingClientRect().height + parseFloat(getComputedStyle(element).marginBottom),
  })
  const shown = virtualizer.getVirtualItems()
  useShown(
    shown.map(({ index }) => rows[index] as Row),
    keyOf,
    props.onShow,
  )
  const before = (shown[0]?.start ?? top) - top
  const after = virtualizer.getTotalSize() - ((shown[shown.length - 1]?.end ?? top) - top)
  return (
    <tbody role="rowgroup" ref={body}>
      <Space height={before} span={span} />
      {shown.map(({ key, index }) => (
        <DataRow key={key} {...props} row={rows[index] as Row} index={index} measure={virtualizer.measureElement} />
      ))}
      <Space height={after} span={span} />
    </tbody>
  )
}

/** In place of the rows that are out of sight. */
function Space({ height, span }: { height: number; span: number }) {
  return height > 0 ? (
    <tr aria-hidden className={classes.space}>
      <td colSpan={span} style={{ height }} />
    </tr>
  ) : null
}
