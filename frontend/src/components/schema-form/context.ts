import type { Connector, ConnectorType } from '@/lib/queries/connectors'

/** A field of the messages that a form is about. */
export interface MessageField {
  path: string
  type: string
  example: string
}

/** What a form offers beside its schema. */
export interface FormContext {
  /** The workspace's connectors and all types of connectors, for fields that name a connector. */
  connectors?: Connector[]
  types?: ConnectorType[]
  /** Fields of the messages that the form is about. */
  messageFields?: MessageField[]
}

export const contextOf = (registry: { formContext: unknown }) => (registry.formContext ?? {}) as FormContext
