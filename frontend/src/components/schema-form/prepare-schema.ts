import type { RJSFSchema, UiSchema } from '@rjsf/utils'

type Node = Record<string, unknown>

/**
 * Makes a pydantic JSON Schema fit for a form: "a value or null" becomes an optional value, and
 * the constant that tells variants apart is filled in without being shown.
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
  if (real.length === 1 && variants.length === 2) {
    const merged: Node = { ...real[0], ...node }
    delete merged.anyOf
    if (merged.default === null) delete merged.default
    return rewrite(merged)
  }
  return Object.fromEntries(Object.entries(node).map(([name, child]) => [name, rewrite(child)]))
}

/** Hides constants wherever they are; the form library reads this beside the schema. */
export function hideConstants(schema: RJSFSchema, uiSchema: UiSchema = {}): UiSchema {
  const found: UiSchema = { ...uiSchema }
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    if (typeof property === 'object' && property.const !== undefined) {
      found[name] = { 'ui:widget': 'hidden', ...(found[name] as UiSchema) }
    }
  }
  return found
}
