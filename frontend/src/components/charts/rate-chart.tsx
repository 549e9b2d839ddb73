import { Group, Text } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { useState, type PointerEvent } from 'react'
import { useTranslation } from 'react-i18next'

import { clock, compact, count, dateAndTime, perSecond } from '@/lib/format'
import { usePreferences } from '@/lib/preferences'
import type { Point } from '@/lib/rates'

import classes from './rate-chart.module.css'
import { day, runsOf, spread, timeTicks, valueTicks, zoneOffset } from './scale'

const series = ['in', 'delivered', 'dead'] as const
const names = { in: 'pipelines.inRate', delivered: 'pipelines.outRate', dead: 'pipelines.deadRate' } as const
const colours = { in: 'var(--chart-in)', delivered: 'var(--chart-delivered)', dead: 'var(--chart-failed)' }

const waitingColour = 'var(--chart-waiting)'

const top = 10
const left = 44
const bottom = 214
/** What waits is no rate: it has a scale of its own, below. */
const waitingTop = bottom + 20
const waitingBottom = waitingTop + 60
/** The room for the times along the bottom. */
const timesHeight = 26
const labelHeight = 15
const intervals = 4
/** The room that a time on the axis needs. */
const tickWidth = 90
/** From here on there is room for the names of the lines at their ends. */
const wideFrom = 480
const nameWidth = 84

/**
 * What came in, was delivered and failed, in messages per second, and, where it is known, how many messages waited: in
 * the same colours on every page.
 */
export function RateChart({ points, withDate = false }: { points: Point[]; withDate?: boolean }) {
  const { t } = useTranslation()
  const { ref, width } = useElementSize()
  const [first, last] = [points[0], points[points.length - 1]]
  if (!first || !last || points.every((point) => point.in + point.delivered + point.dead + (point.waiting ?? 0) === 0)) {
    return (
      <Text c="dimmed" size="sm" py="xl" ta="center">
        {t('pipelines.noTraffic')}
      </Text>
    )
  }
  const isWide = width >= wideFrom
  const hasWaiting = points.some(({ waiting }) => waiting !== null)
  const height = (hasWaiting ? waitingBottom : bottom) + timesHeight
  return (
    <>
      {!isWide && (
        <Group gap="md" mb={4} justify="flex-end">
          {series.map((name) => (
            <span key={name} className={classes.name} style={{ color: colours[name] }}>
              {t(names[name])}
            </span>
          ))}
          {hasWaiting && (
            <span className={classes.name} style={{ color: waitingColour }}>
              {t('pipelines.waiting')}
            </span>
          )}
        </Group>
      )}
      <div ref={ref} className={classes.chart} style={{ height }}>
        {width > 0 && <Plot points={points} first={first} last={last} width={width} right={isWide ? width - nameWidth : width - 8} hasNames={isWide} hasWaiting={hasWaiting} height={height} withDate={withDate} />}
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
  hasWaiting: boolean
  height: number
  withDate: boolean
}

function Plot({ points, first, last, width, right, hasNames, hasWaiting, height, withDate }: PlotProps) {
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
  const waiting = last.waiting === null ? [] : [`${t('pipelines.waiting')} ${count(last.waiting, i18n.language)}`]
  const summary = [...series.map((name) => `${t(names[name])} ${rate(last[name])}`), ...waiting].join(', ')
  return (
    <>
      <svg role="img" aria-label={`${t('pipelines.throughput')}: ${summary}`} width={width} height={height} onPointerMove={follow} onPointerLeave={() => setShown(null)}>
        {values.map((value) => (
          <g key={value}>
            <line className={classes.grid} x1={left} x2={right} y1={y(value)} y2={y(value)} />
            <text className={classes.axis} x={left - 8} y={y(value) + 4} textAnchor="end">
              {count(value, i18n.language)}
            </text>
          </g>
        ))}
        {hasWaiting && <Waiting points={points} x={x} right={right} hasName={hasNames} shown={point} />}
        <Times first={first.second} last={last.second} x={x} y={height - 6} room={right - left} />
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
            <line className={classes.cross} x1={x(point.second)} x2={x(point.second)} y1={top} y2={hasWaiting ? waitingBottom : bottom} />
            {series.map((name) => (
              <circle key={name} cx={x(point.second)} cy={y(point[name])} r={3} fill={colours[name]} />
            ))}
          </>
        )}
      </svg>
      {point && <Values point={point} x={x(point.second)} width={width} rate={rate} hasWaiting={hasWaiting} withDate={withDate} />}
    </>
  )
}

interface WaitingProps {
  points: Point[]
  x: (second: number) => number
  right: number
  hasName: boolean
  /** The point at the pointer. */
  shown: Point | undefined
}

/** How many messages waited; where that is not known the line has a gap. */
function Waiting({ points, x, right, hasName, shown }: WaitingProps) {
  const { t, i18n } = useTranslation()
  const values = valueTicks(Math.max(1, ...points.map(({ waiting }) => waiting ?? 0)), 1)
  const y = (value: number) => waitingBottom - (value / (values[values.length - 1] ?? 1)) * (waitingBottom - waitingTop)
  const runs = runsOf(points, ({ waiting }) => waiting !== null)
  const newest = points[points.length - 1]?.waiting ?? 0
  const placeOf = ({ second, waiting }: Point) => `${x(second).toFixed(1)},${y(waiting ?? 0).toFixed(1)}`
  return (
    <g>
      {values.map((value) => (
        <g key={value}>
          <line className={classes.grid} x1={left} x2={right} y1={y(value)} y2={y(value)} />
          <text className={classes.axis} x={left - 8} y={y(value) + 4} textAnchor="end">
            {compact(value, i18n.language)}
          </text>
        </g>
      ))}
      {runs.map((run) => (
        // A single point is a line that leads back to it: it would not be drawn otherwise.
        <polyline key={run[0]?.second} className={classes.waiting} points={[...run, ...run.slice(0, run.length === 1 ? 1 : 0)].map(placeOf).join(' ')} />
      ))}
      {hasName && (
        <text className={classes.name} x={right + 8} y={Math.min(y(newest) + 4, waitingBottom)} fill={waitingColour}>
          {t('pipelines.waiting')}
        </text>
      )}
      {shown && shown.waiting !== null && <circle cx={x(shown.second)} cy={y(shown.waiting)} r={3} fill={waitingColour} />}
    </g>
  )
}

/** Round times along the bottom. */
function Times({ first, last, x, y, room }: { first: number; last: number; x: (second: number) => number; y: number; room: number }) {
  const { i18n } = useTranslation()
  const { timeZone } = usePreferences()
  const { step, ticks } = timeTicks(first, last, Math.max(1, Math.floor(room / tickWidth)), zoneOffset(new Date(last * 1000), timeZone))
  const format = new Intl.DateTimeFormat(i18n.language, {
    timeZone,
    ...(step >= day ? { month: 'short', day: 'numeric' } : { hour: 'numeric', minute: '2-digit', second: step < 60 ? '2-digit' : undefined }),
  })
  return ticks.map((second) => (
    <text key={second} className={classes.axis} x={x(second)} y={y} textAnchor="middle">
      {format.format(second * 1000)}
    </text>
  ))
}

interface ValuesProps {
  point: Point
  x: number
  width: number
  rate: (value: number) => string
  hasWaiting: boolean
  withDate: boolean
}

/** What the lines are at the pointer, at its side where there is more room. */
function Values({ point, x, width, rate, hasWaiting, withDate }: ValuesProps) {
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
      {hasWaiting && (
        <div className={classes.value}>
          <span style={{ color: waitingColour }}>{t('pipelines.waiting')}</span>
          <span>{point.waiting === null ? t('pipelines.waitingUnknown') : count(point.waiting, i18n.language)}</span>
        </div>
      )}
    </div>
  )
}
