import { Alert, Button, Text } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import { Component, type ReactNode } from 'react'
import { withTranslation, type WithTranslation } from 'react-i18next'

import { sentence } from '@/lib/api/problem'

interface Props extends WithTranslation {
  /** Where the children stand: elsewhere, what failed here is forgotten. */
  place: string
  children: ReactNode
}

/** A page that failed says so and leaves the rest of the console working. */
class Boundary extends Component<Props, { error: unknown }> {
  state: { error: unknown } = { error: null }

  componentDidUpdate(before: Props) {
    // Only a place that changes is followed by this update, which does not change it again.
    // oxlint-disable-next-line react/no-did-update-set-state
    if (before.place !== this.props.place && this.state.error !== null) this.setState({ error: null })
  }

  static getDerivedStateFromError(error: unknown) {
    return { error }
  }

  render() {
    if (this.state.error === null) return this.props.children
    return (
      <Alert color="red" icon={<IconAlertTriangle />} title={this.props.t('common.failed')}>
        <Text size="sm" mb="sm">
          {sentence(this.state.error)}
        </Text>
        <Button size="xs" variant="default" onClick={() => this.setState({ error: null })}>
          {this.props.t('common.retry')}
        </Button>
      </Alert>
    )
  }
}

export const ErrorBoundary = withTranslation()(Boundary)
