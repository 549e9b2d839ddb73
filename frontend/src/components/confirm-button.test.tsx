import { MantineProvider } from '@mantine/core'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { afterEach, expect, test, vi } from 'vitest'

import '@/lib/i18n'

import { ConfirmButton } from './confirm-button'

afterEach(cleanup)

function show(props: { typed?: string; hindrance?: () => Promise<string | undefined> }) {
  const confirmed = vi.fn()
  render(
    <MantineProvider env="test">
      <ConfirmButton title="Delete it?" text="It is gone then." onConfirm={confirmed} {...props}>
        Delete
      </ConfirmButton>
    </MantineProvider>,
  )
  fireEvent.click(screen.getByRole('button', { name: 'Delete' }))
  return confirmed
}

const inDialog = () => screen.getAllByRole('button', { name: 'Delete' }).find((button) => button.closest('[role=dialog]'))

test('what cannot be undone is done once its name is typed', () => {
  const confirmed = show({ typed: 'Orders' })
  fireEvent.click(inDialog() as Element)
  expect(confirmed).not.toHaveBeenCalled()
  fireEvent.change(screen.getByLabelText('Type Orders to confirm'), { target: { value: 'Orders' } })
  fireEvent.click(inDialog() as Element)
  expect(confirmed).toHaveBeenCalledOnce()
})

test('what hinders it is said instead of asking', async () => {
  const confirmed = show({ hindrance: () => Promise.resolve('It is used by: Orders.') })
  await screen.findByText('It is used by: Orders.')
  expect(screen.queryByText('It is gone then.')).toBeNull()
  expect(inDialog()).toBeUndefined()
  expect(confirmed).not.toHaveBeenCalled()
})
