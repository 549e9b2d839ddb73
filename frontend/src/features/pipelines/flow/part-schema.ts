import type { RJSFSchema } from '@rjsf/utils'

type Value = Record<string, unknown>

const definition = (schema: RJSFSchema, reference: string | undefined) =>
  schema.$defs?.[reference?.replace('#/$defs/', '') ?? ''] as RJSFSchema | undefined

/** The schema of what stands at a part's path: of its variant, where it may have several. */
export function variantOf(schema: RJSFSchema | undefined, path: string, value: Value): RJSFSchema | undefined {
  const [field = '', index] = path.split('.')
  const property = schema?.properties?.[field] as RJSFSchema | undefined
  if (!schema || !property) return undefined
  const place = index === undefined ? property : (property.items as RJSFSchema)
  const mapping = (place as { discriminator?: { mapping: Record<string, string> } }).discriminator?.mapping
  const optional = (place.anyOf as RJSFSchema[] | undefined)?.find(({ $ref }) => $ref)
  return definition(schema, mapping?.[value.type as string] ?? place.$ref ?? optional?.$ref)
}

/** A schema for a form of one part alone. A list is edited as a whole, under its name. */
export function partSchema(schema: RJSFSchema, path: string, value: Value): RJSFSchema {
  const variant = variantOf(schema, path, value)
  if (variant) return { ...variant, $defs: schema.$defs }
  return { ...schema, properties: { [path]: schema.properties?.[path] ?? {} }, required: [] }
}

export interface Choice {
  type: string
  title: string
  description: string
}

/** The variants that a place may have. */
export function choicesOf(schema: RJSFSchema, field: 'input' | 'transforms'): Choice[] {
  const property = schema.properties?.[field] as RJSFSchema
  const place = (field === 'input' ? property : property.items) as { discriminator: { mapping: Record<string, string> } }
  return Object.entries(place.discriminator.mapping).map(([type, reference]) => {
    const { title = type, description = '' } = definition(schema, reference) ?? {}
    return { type, title, description }
  })
}
