import { notifications } from '@mantine/notifications'

import { sentence } from '@/lib/api/problem'

export function toastDone(message: string): void {
  notifications.show({ message, color: 'green' })
}

export function toastFailed(error: unknown): void {
  notifications.show({ message: sentence(error), color: 'red', autoClose: 10_000 })
}
