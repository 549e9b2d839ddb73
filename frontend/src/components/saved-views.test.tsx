import { MantineProvider } from '@mantine/core'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { MemoryRouter } from 'react-router'
import { afterEach, expect, test } from 'vitest'

import '@/lib/i18n'

import { SavedViews } from './saved-views'

afterEach(cleanup)

function show(address: string) {
  render(
    <MantineProvider env="test">
      <MemoryRouter initialEntries={[address]}>
        <SavedViews />
      </MemoryRouter>
    </MantineProvider>,
  )
  fireEvent.click(screen.getByRole('button', { name: 'Saved views' }))
}

test('a view is saved with its filters and order, gone back to, and removed', async () => {
  show('/dead-letters?reason=timeout&sort=-failed')
  fireEvent.change(await screen.findByLabelText('Name of the current view'), { target: { value: 'Timeouts' } })
  fireEvent.click(screen.getByRole('button', { name: 'Save' }))
  cleanup()
  show('/dead-letters')
  expect((await screen.findByRole('link', { name: 'Timeouts' })).getAttribute('href')).toBe('/dead-letters?reason=timeout&sort=-failed')
  fireEvent.click(screen.getByRole('button', { name: 'Remove Timeouts' }))
  expect(screen.queryByRole('link', { name: 'Timeouts' })).toBeNull()
})
