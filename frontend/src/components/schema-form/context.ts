import type { Connector, ConnectorType } from '@/lib/queries/connectors'

import type { MessageField } from './field-path-widget'

/** What a form offers beside its schema. */
export interface FormContext {
  /** The workspace's connectors and all types of connectors, for fields that name a connector. */
  connectors?: Connector[]
  types?: ConnectorType[]
  /** Fields of the messages that the form is about. */
  messageFields?: MessageField[]
}

export const contextOf = (registry: { formContext: unknown }) => (registry.formContext ?? {}) as FormContext
