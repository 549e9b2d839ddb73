import { MantineProvider } from '@mantine/core'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { afterEach, expect, test, vi } from 'vitest'

import '@/lib/i18n'
import type { Pipeline } from '@/lib/queries/pipelines'

import { BulkBar } from './bulk-bar'

afterEach(cleanup)

const pipelines = [
  { id: 'a', name: 'A', paused: false },
  { id: 'b', name: 'B', paused: true },
  { id: 'c', name: 'C', paused: false },
  { id: 'd', name: 'D', paused: false },
] as Pipeline[]

function show(...chosen: string[]) {
  const onChange = vi.fn()
  render(
    <MantineProvider env="test">
      <BulkBar pipelines={pipelines} chosen={new Set(chosen)} onChange={onChange} />
    </MantineProvider>,
  )
  return onChange
}

const button = (name: string) => screen.getByRole<HTMLButtonElement>('button', { name })

test('each action names how many of the chosen ones it reaches', () => {
  show('a', 'b', 'c')
  expect(screen.getByRole('status').textContent).toBe('3 selected')
  expect([button('Pause 2').disabled, button('Resume 1').disabled]).toEqual([false, false])
})

test('what reaches none cannot be done', () => {
  show('a')
  expect([button('Pause 1').disabled, button('Resume 0').disabled]).toEqual([false, true])
})

test('those that the list does not show any more are not among them', () => {
  show('gone')
  expect(screen.queryByRole('group')).toBeNull()
})

test('all that are listed are chosen, or none', () => {
  const onChange = show('a', 'gone')
  fireEvent.click(button('Select all 4'))
  expect(onChange).toHaveBeenLastCalledWith(new Set(['a', 'b', 'c', 'd']))
  fireEvent.click(button('Clear selection'))
  expect(onChange).toHaveBeenLastCalledWith(new Set())
})
