import type { RJSFSchema, UiSchema } from '@rjsf/utils'

type Node = Record<string, unknown>

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
  const real = variants.filter((variant) => variant.type !== 'null')
  const only = real[0]
  if (only && real.length === 1 && variants.length === 2) {
    // A group of fields is left out until it is chosen; its required fields would be asked for otherwise.
    if ('$ref' in only || only.type === 'object') {
      return { ...node, anyOf: [{ type: 'null', title: 'Not set' }, rewrite(only)] }
    }
    const merged: Node = { ...only, ...node }
    delete merged.anyOf
    if (merged.default === null) delete merged.default
    return rewrite(merged)
  }
  return Object.fromEntries(Object.entries(node).map(([name, child]) => [name, rewrite(child)]))
}

/** One of several shapes of a field, told apart by a constant. */
export function isVariant(schema: RJSFSchema): boolean {
  return Object.values(schema.properties ?? {}).some((found) => typeof found === 'object' && found.const !== undefined)
}

const typing = ['type', 'const', 'enum', '$ref', 'anyOf', 'oneOf', 'allOf']

/**
 * What the form library has to be told beside the schema: constants are not shown, and a field
 * that may hold any value is edited as JSON.
 */
export function uiSchemaOf(schema: RJSFSchema, uiSchema: UiSchema = {}): UiSchema {
  const found: UiSchema = { ...uiSchema }
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    if (typeof property !== 'object') continue
    const said = found[name] as UiSchema | undefined
    if (property.const !== undefined) found[name] = { 'ui:widget': 'hidden', ...said }
    else if (!typing.some((keyword) => keyword in property)) found[name] = { 'ui:field': 'JsonField', ...said }
  }
  return found
}
