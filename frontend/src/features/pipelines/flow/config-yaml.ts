import { parseDocument, stringify, visit } from 'yaml'

import { exactNumber } from '@/lib/json'

/** The YAML of a configuration. */
export const toYaml = (config: object): string => stringify(config)

/** The value of a YAML document, with numbers as `parseJson` reads them. Throws an Error, also an InexactNumberError. */
export function parseYaml(text: string): unknown {
  const document = parseDocument(text, { intAsBigInt: true })
  const [error] = document.errors
  if (error) throw error
  visit(document, {
    Scalar: (_, node) => {
      if (typeof node.value === 'bigint') node.value = exactNumber(String(node.value))
      else if (isWrittenNumber(node.value, node.source)) node.value = exactNumber(asInJson(node.source))
    },
  })
  return document.toJS()
}

/** Infinity and NaN are words. */
function isWrittenNumber(value: unknown, source: string | undefined): source is string {
  return typeof value === 'number' && source !== undefined && /\d/.test(source)
}

/** YAML allows a plus sign, and a decimal point with digits on one side only. */
function asInJson(source: string): string {
  return source
    .replace(/^\+/, '')
    .replace(/^(-?)\./, '$10.')
    .replace(/\.(?=e|$)/i, '')
}
