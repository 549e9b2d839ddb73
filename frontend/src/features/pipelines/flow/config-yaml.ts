import { parseDocument, stringify, visit } from 'yaml'

import type { Config } from '@/features/pipelines/api/pipelines'
import { exactNumber } from '@/lib/json'

import { partsOf, withPart } from './parts'

/** The YAML of a configuration. */
export const toYaml = (config: object): string => stringify(config)

interface Connector {
  id: string
  name: string
}

/** A configuration that calls its connectors by their names, as files do. What is no known id stays. */
export const withConnectorNames = (config: Config, connectors: Connector[]): Config =>
  withConnectors(config, (id) => connectors.find((one) => one.id === id)?.name ?? id)

/** The opposite, in which ids may stand as well. Throws an UnknownConnectorError. */
export const withConnectorIds = (config: Config, connectors: Connector[]): Config =>
  withConnectors(config, (name) => {
    const id = connectors.find((one) => one.name === name)?.id ?? (UUID.test(name) || name === '' ? name : undefined)
    if (id === undefined) throw new UnknownConnectorError(name)
    return id
  })

export class UnknownConnectorError extends Error {}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

function withConnectors(config: Config, replaced: (connector: string) => string): Config {
  return partsOf(config).reduce(
    (result, { path, value }) =>
      typeof value?.connector === 'string' ? withPart(result, path, { ...value, connector: replaced(value.connector) }) : result,
    config,
  )
}

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
