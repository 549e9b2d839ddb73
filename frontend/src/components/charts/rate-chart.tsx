import { Group, Text } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { useState, type PointerEvent } from 'react'
import { useTranslation } from 'react-i18next'

import { clock, dateAndTime, perSecond } from '@/lib/format'
import { usePreferences } from '@/lib/preferences'
import type { Point } from '@/lib/rates'

import classes from './rate-chart.module.css'
import { day, spread, timeTicks, valueTicks, zoneOffset } from './scale'

const series = ['in', 'delivered', 'dead'] as const
const names = { in: 'pipelines.inRate', delivered: 'pipelines.outRate', dead: 'pipelines.deadRate' } as const
const colours = { in: 'var(--chart-in)', delivered: 'var(--chart-delivered)', dead: 'var(--chart-failed)' }

const height = 240
const top = 10
const left = 44
const bottom = height - 26
const labelHeight = 15
const intervals = 4
/** The room that a time on the axis needs. */
const tickWidth = 90
/** From here on there is room for the names of the lines at their ends. */
const wideFrom = 480
const nameWidth = 84

/** What came in, was delivered and failed, in messages per second: in the same colours on every page. */
export function RateChart({ points, withDate = false }: { points: Point[]; withDate?: boolean }) {
  const { t } = useTranslation()
  const { ref, width } = useElementSize()
  const [first, last] = [points[0], points[points.length - 1]]
  if (!first || !last || points.every((point) => point.in + point.delivered + point.dead === 0)) {
    return (
      <Text c="dimmed" size="sm" py="xl" ta="center">
        {t('pipelines.noTraffic')}
      </Text>
    )
  }
  const isWide = width >= wideFrom
  return (
    <>
      {!isWide && (
        <Group gap="md" mb={4} justify="flex-end">
          {series.map((name) => (
            <span key={name} className={classes.name} style={{ color: colours[name] }}>
              {t(names[name])}
            </span>
          ))}
        </Group>
      )}
      <div ref={ref} className={classes.chart} style={{ height }}>
        {width > 0 && <Plot points={points} first={first} last={last} width={width} right={isWide ? width - nameWidth : width - 8} hasNames={isWide} withDate={withDate} />}
      </div>
    </>
  )
}

interface PlotProps {
  points: Point[]
  first: Point
  last: Point
  width: number
  /** Where the lines end. */
  right: number
  hasNames: boolean
  withDate: boolean
}

function Plot({ points, first, last, width, right, hasNames, withDate }: PlotProps) {
  const { t, i18n } = useTranslation()
  const [shown, setShown] = useState<number | null>(null)
  const most = Math.max(...points.flatMap((point) => series.map((name) => point[name])))
  const values = valueTicks(most, intervals)
  const x = (second: number) => left + ((second - first.second) / Math.max(last.second - first.second, 1)) * (right - left)
  const y = (value: number) => bottom - (value / (values[values.length - 1] ?? 1)) * (bottom - top)
  const rate = (value: number) => t('pipelines.ratePerSecond', { rate: perSecond(value, i18n.language) })
  const endsAt = spread(series.map((name) => y(last[name]) + 4), labelHeight, bottom)
  const follow = (event: PointerEvent<SVGSVGElement>) => {
    const share = (event.clientX - event.currentTarget.getBoundingClientRect().left - left) / (right - left)
    setShown(Math.min(Math.max(Math.round(share * (points.length - 1)), 0), points.length - 1))
  }
  const point = shown === null ? undefined : points[Math.min(shown, points.length - 1)]
  const summary = series.map((name) => `${t(names[name])} ${rate(last[name])}`).join(', ')
  return (
    <>
      <svg role="img" aria-label={`${t('pipelines.throughput')}: ${summary}`} width={width} height={height} onPointerMove={follow} onPointerLeave={() => setShown(null)}>
        {values.map((value) => (
          <g key={value}>
            <line className={classes.grid} x1={left} x2={right} y1={y(value)} y2={y(value)} />
            <text className={classes.axis} x={left - 8} y={y(value) + 4} textAnchor="end">
              {perSecond(value, i18n.language)}
            </text>
          </g>
        ))}
        <Times first={first.second} last={last.second} x={x} room={right - left} />
        {series.map((name, index) => (
          <g key={name}>
            <polyline className={classes.line} stroke={colours[name]} points={points.map((one) => `${x(one.second).toFixed(1)},${y(one[name]).toFixed(1)}`).join(' ')} />
            {hasNames && (
              <text className={classes.name} x={right + 8} y={endsAt[index]} fill={colours[name]}>
                {t(names[name])}
              </text>
            )}
          </g>
        ))}
        {point && (
          <>
            <line className={classes.cross} x1={x(point.second)} x2={x(point.second)} y1={top} y2={bottom} />
            {series.map((name) => (
              <circle key={name} cx={x(point.second)} cy={y(point[name])} r={3} fill={colours[name]} />
            ))}
          </>
        )}
      </svg>
      {point && <Values point={point} x={x(point.second)} width={width} rate={rate} withDate={withDate} />}
    </>
  )
}

/** Round times along the bottom. */
function Times({ first, last, x, room }: { first: number; last: number; x: (second: number) => number; room: number }) {
  const { i18n } = useTranslation()
  const { timeZone } = usePreferences()
  const { step, ticks } = timeTicks(first, last, Math.max(1, Math.floor(room / tickWidth)), zoneOffset(new Date(last * 1000), timeZone))
  const format = new Intl.DateTimeFormat(i18n.language, {
    timeZone,
    ...(step >= day ? { month: 'short', day: 'numeric' } : { hour: 'numeric', minute: '2-digit', second: step < 60 ? '2-digit' : undefined }),
  })
  return ticks.map((second) => (
    <text key={second} className={classes.axis} x={x(second)} y={height - 6} textAnchor="middle">
      {format.format(second * 1000)}
    </text>
  ))
}

interface ValuesProps {
  point: Point
  x: number
  width: number
  rate: (value: number) => string
  withDate: boolean
}

/** What the lines are at the pointer, at its side where there is more room. */
function Values({ point, x, width, rate, withDate }: ValuesProps) {
  const { t, i18n } = useTranslation()
  const { timeZone } = usePreferences()
  const at = new Date(point.second * 1000)
  return (
    <div className={classes.tip} style={x < width / 2 ? { left: x + 12 } : { right: width - x + 12 }}>
      {withDate ? dateAndTime(at, i18n.language, timeZone) : clock(at, i18n.language, timeZone)}
      {series.map((name) => (
        <div key={name} className={classes.value}>
          <span style={{ color: colours[name] }}>{t(names[name])}</span>
          <span>{rate(point[name])}</span>
        </div>
      ))}
    </div>
  )
}
