import type { RJSFSchema } from '@rjsf/utils'

import type { Translate } from '@/lib/texts'

/** Keywords that hold schemas by names, and names are no keywords. */
const maps = new Set(['properties', 'patternProperties', '$defs'])

/** Keywords that hold values and no schemas. */
const values = new Set(['const', 'default', 'discriminator', 'enum', 'examples', 'required'])

/**
 * A schema with its titles, descriptions and the names of its choices in another language. Values stay as they are:
 * `enumNames` says what the form shows for those of an `enum`.
 */
export function translateSchema(schema: RJSFSchema, t: Translate): RJSFSchema {
  return translated(schema, t) as RJSFSchema
}

function translated(node: unknown, t: Translate): unknown {
  if (Array.isArray(node)) return node.map((item) => translated(item, t))
  if (typeof node !== 'object' || node === null) return node
  const entries = Object.entries(node).map(([key, child]: [string, unknown]): [string, unknown] => {
    if ((key === 'title' || key === 'description') && typeof child === 'string') return [key, t(child)]
    if (values.has(key)) return [key, child]
    return [key, maps.has(key) ? byName(child, t) : translated(child, t)]
  })
  const names = namesOf((node as RJSFSchema).enum, t)
  return Object.fromEntries(names ? [...entries, ['enumNames', names]] : entries)
}

function byName(schemas: unknown, t: Translate): unknown {
  return Object.fromEntries(Object.entries(schemas as object).map(([name, schema]) => [name, translated(schema, t)]))
}

/** What to show for the values of an enumeration; nothing where they say it themselves. */
function namesOf(choices: unknown[] | undefined, t: Translate): string[] | undefined {
  const names = choices?.map((choice) => nameOf(String(choice), t))
  return names?.some((name, index) => name !== String(choices?.[index])) ? names : undefined
}

function nameOf(choice: string, t: Translate): string {
  const name = t(choice)
  return name === choice ? choice.replaceAll('_', ' ') : name
}
