import '@mantine/notifications/styles.css'

// On its own, so that it is loaded later than the store in which messages wait to be shown.
export { Notifications } from '@mantine/notifications'
