import { MantineProvider } from '@mantine/core'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { afterEach, expect, test, vi } from 'vitest'

import '@/lib/i18n'
import { PreferencesProvider } from '@/lib/preferences'
import type { Point } from '@/lib/rates'

import { RateChart } from './rate-chart'

const width = vi.hoisted(() => ({ current: 800 }))
vi.mock(import('@mantine/hooks'), async (original) => ({
  ...(await original()),
  useElementSize: () => ({ ref: () => undefined, width: width.current, height: 240 }),
}))

afterEach(() => {
  cleanup()
  width.current = 800
})

const point = (second: number, waiting: number | null, rate = 1): Point => ({ second, in: rate, delivered: rate, dead: 0, waiting })

function show(points: Point[]) {
  const { container } = render(
    <MantineProvider env="test">
      <PreferencesProvider>
        <RateChart points={points} />
      </PreferencesProvider>
    </MantineProvider>,
  )
  return container
}

test('what waited is a line of its own with gaps, its name, and its number at the pointer', () => {
  const chart = show([point(0, 5), point(60, 1234), point(120, null), point(180, 70)])
  expect(chart.querySelectorAll('polyline')).toHaveLength(3 + 2)
  expect(screen.getAllByText('Waiting')).toHaveLength(1)
  const plot = screen.getByRole('img')
  expect(plot.getAttribute('aria-label')).toContain('Waiting 70')
  const tip = (clientX: number) => {
    fireEvent.pointerMove(plot, { clientX })
    return chart.querySelector('div > svg + div')?.textContent
  }
  expect(tip(60 + (700 - 60) / 3)).toContain('Waiting1,234')
  expect(tip(44 + ((716 - 44) * 2) / 3)).toContain('Waitingnot known')
})

test('the axis says where its lines are', () => {
  show([point(0, 5, 1), point(60, 6, 0)])
  expect(['0.25', '0.5', '0.75'].every((value) => screen.queryByText(value))).toBe(true)
})

test('a narrow chart names the line above it', () => {
  width.current = 320
  show([point(0, 5), point(60, 6)])
  expect(screen.getAllByText('Waiting')).toHaveLength(1)
})

test('where nothing is known of what waited there is no line for it', () => {
  const chart = show([point(0, null), point(60, null)])
  expect(chart.querySelectorAll('polyline')).toHaveLength(3)
  expect(screen.queryByText('Waiting')).toBeNull()
})

test('messages that wait are shown though nothing moves', () => {
  show([point(0, 5, 0), point(60, 5, 0)])
  expect(screen.queryByText('No messages in this period.')).toBeNull()
  cleanup()
  show([point(0, 0, 0), point(60, 0, 0)])
  expect(screen.getByText('No messages in this period.')).toBeTruthy()
})
