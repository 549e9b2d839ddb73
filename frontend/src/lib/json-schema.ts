import type { RJSFSchema } from '@rjsf/utils'

/** Every schema that a place may have: what it refers to and all its variants, whichever of them is chosen. */
export function shapesOf(root: RJSFSchema, places: RJSFSchema[]): RJSFSchema[] {
  const found = new Set<RJSFSchema>()
  const open = [...places]
  for (let place = open.pop(); place; place = open.pop()) {
    if (found.has(place)) continue
    found.add(place)
    const target = place.$ref && root.$defs?.[place.$ref.replace('#/$defs/', '')]
    open.push(...[target, ...(place.anyOf ?? []), ...(place.oneOf ?? []), ...(place.allOf ?? [])].filter(isSchema))
  }
  return [...found]
}

/** The schemas that a property, or an element of a list, may have in a value of these shapes. */
export function childrenOf(shapes: RJSFSchema[], name: string | number): RJSFSchema[] {
  return shapes.flatMap((shape) => (typeof name === 'number' ? elements(shape, name) : properties(shape, name))).filter(isSchema)
}

function properties({ properties: known = {}, patternProperties = {}, additionalProperties }: RJSFSchema, name: string): unknown[] {
  return Object.hasOwn(known, name) ? [known[name]] : [...Object.values(patternProperties), additionalProperties]
}

function elements(shape: RJSFSchema, index: number): unknown[] {
  const { prefixItems = [], items } = shape as { prefixItems?: unknown[]; items?: unknown }
  return index < prefixItems.length ? [prefixItems[index]] : Array.isArray(items) ? [items[index]] : [items]
}

function isSchema(value: unknown): value is RJSFSchema {
  return typeof value === 'object' && value !== null
}

/** The titles on the way to a field, such as "Sign-in › Password"; a step without a title by its name. */
export function titleAt(root: RJSFSchema, path: string, translate: (title: string) => string): string {
  let shapes = shapesOf(root, [root])
  const titles = path.split('.').map((step) => {
    const isElement = /^\d+$/.test(step)
    const places = childrenOf(shapes, isElement ? Number(step) : step)
    shapes = shapesOf(root, places)
    // People count from one; an element's title is that of all elements.
    if (isElement) return String(Number(step) + 1)
    const title = places.find((place) => place.title)?.title
    return title ? translate(title) : step
  })
  return titles.join(' › ')
}
