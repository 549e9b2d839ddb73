import { MantineProvider } from '@mantine/core'
import { act, cleanup, fireEvent, render, screen } from '@testing-library/react'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'

import '@/lib/i18n'
import { PreferencesProvider } from '@/lib/preferences'
import type { Point } from '@/lib/rates'

import { RateChart } from './rate-chart'

// jsdom lays nothing out.
let width = 800
class Observer {
  private readonly report: (entries: { contentRect: { width: number; height: number } }[]) => void
  constructor(report: Observer['report']) {
    this.report = report
  }
  observe() {
    this.report([{ contentRect: { width, height: 240 } }])
  }
  disconnect() {}
}

beforeEach(() => vi.stubGlobal('ResizeObserver', Observer))

afterEach(() => {
  cleanup()
  width = 800
})

const point = (second: number, waiting: number | null, rate = 1): Point => ({ second, in: rate, delivered: rate, dead: 0, waiting })

async function show(points: Point[]) {
  const { container } = render(
    <MantineProvider env="test">
      <PreferencesProvider>
        <RateChart points={points} />
      </PreferencesProvider>
    </MantineProvider>,
  )
  // The size is known with the next frame.
  await act(() => new Promise((resolve) => requestAnimationFrame(resolve)))
  return container
}

test('what waited is a line of its own with gaps, its name, and its number at the pointer', async () => {
  const chart = await show([point(0, 5), point(60, 1234), point(120, null), point(180, 70)])
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

test('the axis says where its lines are', async () => {
  await show([point(0, 5, 1), point(60, 6, 0)])
  expect(['0.25', '0.5', '0.75'].every((value) => screen.queryByText(value))).toBe(true)
})

test('a narrow chart names the line above it', async () => {
  width = 320
  await show([point(0, 5), point(60, 6)])
  expect(screen.getAllByText('Waiting')).toHaveLength(1)
})

test('where nothing is known of what waited there is no line for it', async () => {
  const chart = await show([point(0, null), point(60, null)])
  expect(chart.querySelectorAll('polyline')).toHaveLength(3)
  expect(screen.queryByText('Waiting')).toBeNull()
})

test('messages that wait are shown though nothing moves', async () => {
  await show([point(0, 5, 0), point(60, 5, 0)])
  expect(screen.queryByText('No messages in this period.')).toBeNull()
  cleanup()
  await show([point(0, 0, 0), point(60, 0, 0)])
  expect(screen.getByText('No messages in this period.')).toBeTruthy()
})
