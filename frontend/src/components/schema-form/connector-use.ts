import type { RJSFSchema } from '@rjsf/utils'

import type { ConnectorType } from '@/lib/queries/connectors'

import type { FormContext } from './context'

type Value = Record<string, unknown>

/** A place in a form that uses a connector: the field that names it and the one that holds its options. */
export interface ConnectorUse {
  connector: string
  options: string | undefined
  /** Any of which the connector's type must offer. */
  capabilities: string[]
  /** The field that chooses among them, if there is one. */
  mode?: Mode
}

interface Mode {
  field: string
  /** The capability that each of its values stands for. Without a value, the first that the type offers is used. */
  readsBy: Record<string, string>
}

/** Formats by which a schema marks such a place. */
const connectorFormat = 'connector'
const optionsFormat = 'connector-options'

export function isConnector(schema: RJSFSchema): boolean {
  return schema.format === connectorFormat
}

export function capabilitiesIn(schema: RJSFSchema): string[] {
  return (schema as { capabilities?: string[] }).capabilities ?? []
}

/** The use that an object is, if its schema marks it as one. */
export function connectorUseIn(schema: RJSFSchema): ConnectorUse | undefined {
  const properties = Object.entries(schema.properties ?? {}) as [string, RJSFSchema][]
  const connector = properties.find(([, property]) => isConnector(property))
  if (!connector) return undefined
  const options = properties.find(([, property]) => property.format === optionsFormat)
  return {
    connector: connector[0],
    options: options?.[0],
    capabilities: capabilitiesIn(connector[1]),
    mode: modeIn(properties),
  }
}

function modeIn(properties: [string, RJSFSchema][]): Mode | undefined {
  const marked = properties.map(([field, property]) => ({ field, readsBy: (property as { reads_by?: Mode['readsBy'] }).reads_by }))
  return marked.find((mode): mode is Mode => mode.readsBy !== undefined)
}

export function offersAny(type: ConnectorType | undefined, capabilities: string[]): boolean {
  return capabilities.some((name) => name in (type?.capabilities ?? {}))
}

/** Of several capabilities, the one for files is used where files are configured, and that for batches with batches. */
const exportName = 'export'
const batchSuffix = '_batch'

const offeredBy = (type: ConnectorType, { capabilities }: ConnectorUse) => capabilities.filter((name) => name in type.capabilities)

const withProperties = (schema: RJSFSchema, isShown: (name: string) => boolean): RJSFSchema => ({
  ...schema,
  properties: Object.fromEntries(Object.entries(schema.properties ?? {}).filter(([name]) => isShown(name))),
})

/** By which of its capabilities a connector is used; its options are this capability's. */
function capabilityOf(type: ConnectorType, use: ConnectorUse, value: Value): string | undefined {
  const offered = offeredBy(type, use)
  const { mode } = use
  if (mode) {
    const chosen = mode.readsBy[value[mode.field] as string]
    return chosen ? offered.find((name) => name === chosen) : offered[0]
  }
  if (value.files && offered.includes(exportName)) return exportName
  const others = offered.filter((name) => name !== exportName)
  return others.find((name) => name.endsWith(batchSuffix) === Boolean(value.batch)) ?? offered[0]
}

/** Where a form's schema keeps the options of a capability. */
function definitionName(type: string, capability: string): string {
  return `${type}.${capability}.options`
}

/** The type of the chosen connector; none before one is chosen. */
function chosenType({ connectors, types }: FormContext, use: ConnectorUse, value: Value): ConnectorType | undefined {
  const chosen = connectors?.find(({ id }) => id === value[use.connector])
  return types?.find((candidate) => candidate.type === chosen?.type)
}

/** The definition of the options that the chosen connector has here; none before one is chosen. */
export function optionsDefinition(context: FormContext, use: ConnectorUse, value: Value): string | undefined {
  const type = chosenType(context, use, value)
  const capability = type && capabilityOf(type, use, value)
  return capability && definitionName(type.type, capability)
}

/** The schema without the field of the mode, unless the chosen connector leaves a choice or one was made before. */
export function withMode(schema: RJSFSchema, use: ConnectorUse, context: FormContext, value: Value): RJSFSchema {
  const { mode } = use
  if (!mode || value[mode.field]) return schema
  const offered = chosenType(context, use, value)?.capabilities ?? {}
  if (Object.values(mode.readsBy).every((name) => name in offered)) return schema
  return withProperties(schema, (name) => name !== mode.field)
}

/**
 * The schema without the settings of files or batches where the chosen connector takes none, unless they were made
 * before.
 */
export function withForms(schema: RJSFSchema, use: ConnectorUse, context: FormContext, value: Value): RJSFSchema {
  const type = chosenType(context, use, value)
  if (!type) return schema
  const offered = offeredBy(type, use)
  const forms: Record<string, boolean> = {
    files: offered.includes(exportName),
    batch: offered.some((name) => name.endsWith(batchSuffix)),
  }
  return withProperties(schema, (name) => (forms[name] ?? true) || Boolean(value[name]))
}

/**
 * Adds the options of every capability to a schema's definitions, so that a form can refer to those of the connector
 * that is chosen. Their own definitions come along under names that cannot meet others.
 */
export function withOptionSchemas(schema: RJSFSchema, types: ConnectorType[] = []): RJSFSchema {
  const added = types.flatMap(({ type, capabilities }) =>
    Object.entries(capabilities).flatMap(([capability, { options_schema: options }]) =>
      definitionsOf(definitionName(type, capability), options as RJSFSchema),
    ),
  )
  return added.length ? { ...schema, $defs: { ...schema.$defs, ...Object.fromEntries(added) } } : schema
}

function definitionsOf(name: string, schema: RJSFSchema): [string, RJSFSchema][] {
  const { $defs = {}, ...own } = schema
  const definitions: [string, unknown][] = Object.entries($defs).map(([inner, definition]) => [`${name}.${inner}`, definition])
  return [[name, own], ...definitions].map(([key, definition]) => [key as string, withReferences(definition, name) as RJSFSchema])
}

function withReferences(node: unknown, name: string): unknown {
  if (Array.isArray(node)) return node.map((item) => withReferences(item, name))
  if (typeof node === 'string') return node.startsWith('#/$defs/') ? `#/$defs/${name}.${node.slice('#/$defs/'.length)}` : node
  if (typeof node !== 'object' || node === null) return node
  return Object.fromEntries(Object.entries(node).map(([key, child]) => [key, withReferences(child, name)]))
}

/** Whether there is anything to fill in: many capabilities have no options. */
export function hasFields(schema: RJSFSchema | undefined): boolean {
  return Object.keys(schema?.properties ?? {}).length > 0
}

/** A use's schema with the options of its connector in place of the mark; without the field while there are none. */
export function withOptions(schema: RJSFSchema, use: ConnectorUse, definition: string | undefined): RJSFSchema {
  if (!use.options) return schema
  const { [use.options]: marked, ...others } = schema.properties ?? {}
  if (!definition) return { ...schema, properties: others }
  const { title, description } = marked as RJSFSchema
  const options = { title, description, $ref: `#/$defs/${definition}` } as RJSFSchema
  return { ...schema, properties: { ...schema.properties, [use.options]: options } }
}

/** The options that another capability knows too: what it does not know it would refuse. */
export function keptOptions(options: unknown, known: RJSFSchema | undefined): Value {
  const names = new Set(Object.keys(known?.properties ?? {}))
  return Object.fromEntries(Object.entries((options ?? {}) as Value).filter(([name]) => names.has(name)))
}
