import type { RJSFSchema, UiSchema } from '@rjsf/utils'

import { isConnector } from './connector-use'

type Node = Record<string, unknown>

/** Marks the one shape of a field that may also be left out. */
const variant = 'variant'

/**
 * Makes a pydantic JSON Schema fit for a form: "a value or null" becomes an optional value or
 * group of fields, and the constant that tells variants apart is filled in without being shown.
 */
export function prepareSchema(schema: RJSFSchema): RJSFSchema {
  return rewrite(schema) as RJSFSchema
}

function rewrite(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(rewrite)
  if (typeof value !== 'object' || value === null) return value
  const node = value as Node
  const variants = Array.isArray(node.anyOf) ? (node.anyOf as Node[]) : []
  const real = variants.filter(({ type }) => type !== 'null')
  const only = real[0]
  if (only && real.length === 1 && variants.length === 2) {
    // A group of fields is left out until it is chosen; its required fields would be asked for otherwise.
    if ('$ref' in only || only.type === 'object') {
      return { ...node, anyOf: [{ type: 'null', title: 'Not set' }, { ...(rewrite(only) as Node), [variant]: true }] }
    }
    const merged: Node = { ...only, ...node }
    delete merged.anyOf
    if (merged.default === null) delete merged.default
    return rewrite(merged)
  }
  const rewritten = Object.fromEntries(Object.entries(node).map(([name, child]) => [name, rewrite(child)]))
  return real.length > 1 && real.every((variant) => scalars.has(variant.type))
    ? { ...rewritten, anyOf: named(variants) }
    : rewritten
}

const scalars = new Map<unknown, string>([
  ['string', 'Text'],
  ['number', 'Number'],
  ['integer', 'Whole number'],
  ['boolean', 'True or false'],
])

/** The types that a plain value may have, by names to choose from; a number may be a whole one. */
function named(variants: Node[]): Node[] {
  const any = variants.some(({ type }) => type === 'number')
  return variants
    .filter(({ type }) => !(any && type === 'integer'))
    .map((variant) => ({ title: scalars.get(variant.type) ?? 'Not set', ...variant }))
}

/** A shape of a field that was chosen in a selection above it: its constant tells it apart, or it is the only one. */
export function isVariant(schema: RJSFSchema): boolean {
  return variant in schema || Object.values(schema.properties ?? {}).some((property) => typeof property === 'object' && property.const !== undefined)
}

const typing = ['type', 'const', 'enum', '$ref', 'anyOf', 'oneOf', 'allOf']

/** Whether a field may hold any value, or an object of any values. */
function holdsAnything(property: RJSFSchema): boolean {
  const values = property.additionalProperties
  if (property.type === 'object' && values !== undefined && !property.properties) {
    return typeof values === 'object' ? isAny(values) : values
  }
  return isAny(property)
}

function isAny(schema: RJSFSchema): boolean {
  return schema.$ref?.endsWith('/JsonValue') ?? !typing.some((keyword) => keyword in schema)
}

function isPath(schema: RJSFSchema['items']): boolean {
  return typeof schema === 'object' && !Array.isArray(schema) && schema.format === 'field-path'
}

/**
 * What the form library needs to know beside the schema: constants are not shown, a field that may hold any value is
 * edited as JSON, a path is chosen among the fields that messages have, and a connector among the workspace's.
 */
export function uiSchemaOf(schema: RJSFSchema, uiSchema: UiSchema = {}): UiSchema {
  const layout: UiSchema = { ...uiSchema }
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    if (typeof property !== 'object') continue
    layout[name] = { ...layoutOf(property), ...(layout[name] as UiSchema | undefined) }
    if (!Object.keys(layout[name] as object).length) delete layout[name]
  }
  return layout
}

function layoutOf(property: RJSFSchema): UiSchema {
  const layout: UiSchema = {}
  const { enumNames } = property as { enumNames?: string[] }
  if (property.const !== undefined) layout['ui:widget'] = 'hidden'
  else if (holdsAnything(property)) layout['ui:field'] = 'JsonField'
  else if (isPath(property)) layout['ui:widget'] = 'FieldPathWidget'
  else if (isConnector(property)) layout['ui:widget'] = 'ConnectorWidget'
  else if (isPath(property.items)) layout.items = { 'ui:widget': 'FieldPathWidget' }
  if (enumNames) layout['ui:enumNames'] = enumNames
  // Selections, unlike texts, do not look for it in the schema.
  if (property.description) layout['ui:description'] = property.description
  return layout
}
