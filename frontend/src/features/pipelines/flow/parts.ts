import type { Config } from '@/features/pipelines/api/pipelines'
import { toJson } from '@/lib/json'

export type PartKind = 'input' | 'step' | 'index' | 'stream' | 'output'

/** A part of a configuration that is a node of the picture: its dotted path and what is configured there. */
export interface Part {
  path: string
  kind: PartKind
  value: Record<string, unknown>
}

type Value = Record<string, unknown>

/** Of what another release stored, a field may be anything. */
const listOf = (config: Config, field: string) => (Array.isArray(config[field]) ? (config[field] as Value[]) : [])

/** Every part, in the order in which messages meet them. */
export function partsOf(config: Config): Part[] {
  const steps = listOf(config, 'transforms').map((value, index): Part => ({ path: `transforms.${index}`, kind: 'step', value }))
  const outputs = listOf(config, 'outputs').map((value, index): Part => ({ path: `outputs.${index}`, kind: 'output', value }))
  const index: Part[] = listOf(config, 'index').length ? [{ path: 'index', kind: 'index', value: { index: config.index } }] : []
  const stream: Part[] = config.stream_processing
    ? [{ path: 'stream_processing', kind: 'stream', value: config.stream_processing as Value }]
    : []
  return [{ path: 'input', kind: 'input', value: (config.input ?? { type: 'http' }) as Value }, ...steps, ...index, ...stream, ...outputs]
}

/** The part to which a path of a field leads; none for what belongs to no single part. */
export function partPathOf(field: string): string | undefined {
  return /^(input|index|stream_processing|(?:transforms|outputs)\.\d+)(?=\.|$)/.exec(field)?.[1]
}

/**
 * The path by which forms know what a change's path leads to: changes call the elements of a list by their names, where
 * each has one of its own. None where the configuration has nothing there.
 */
export function placeOfChange(path: string, value: unknown): string | undefined {
  if (path === '') return ''
  const names = Array.isArray(value) ? ownNames(value) : undefined
  for (const [key, child] of Object.entries((value ?? {}) as Value)) {
    const name = names?.[Number(key)] ?? key
    const rest = leadsTo(path, name) ? placeOfChange(path.slice(name.length + 1), child) : undefined
    if (rest !== undefined) return [key, rest].filter(Boolean).join('.')
  }
  return undefined
}

const leadsTo = (path: string, name: string) => path === name || path.startsWith(`${name}.`)

/** The elements' names, if each has one of its own. */
function ownNames(items: unknown[]): string[] | undefined {
  const names = items.map((item) => (item as Value | null)?.name).filter((name) => typeof name === 'string')
  return new Set(names).size === items.length ? names : undefined
}

const placeOf = (path: string) => {
  const [field = '', index] = path.split('.')
  return { field, index: index === undefined ? undefined : Number(index) }
}

/** A configuration with another value of a part. */
export function withPart(config: Config, path: string, value: Value): Config {
  const { field, index } = placeOf(path)
  if (index === undefined) return { ...config, ...(field in value && field === 'index' ? value : { [field]: value }) }
  return { ...config, [field]: listOf(config, field).map((old, at) => (at === index ? value : old)) }
}

/** A configuration with one more element of a list, and the path of that. */
export function withAdded(config: Config, field: 'transforms' | 'outputs', value: Value): { config: Config; path: string } {
  const list = listOf(config, field)
  return { config: { ...config, [field]: [...list, value] }, path: `${field}.${list.length}` }
}

export function withoutPart(config: Config, path: string): Config {
  const { field, index } = placeOf(path)
  if (index === undefined) return { ...config, [field]: field === 'index' ? [] : null }
  return { ...config, [field]: listOf(config, field).filter((_, at) => at !== index) }
}

/** A configuration in which a step stands at another place of the chain. */
export function withMoved(config: Config, from: number, to: number): Config {
  const steps = [...listOf(config, 'transforms')]
  const [step] = steps.splice(from, 1)
  if (!step) return config
  steps.splice(to, 0, step)
  return { ...config, transforms: steps }
}

/** What a step does in one line: `user → customer`, `amount = 3`. */
export function summaryOf(step: Value): string {
  const paths = [step.path, step.paths, step.of].flat().filter((path) => typeof path === 'string' && path !== '')
  const subject = paths.join(', ') || [step.expression, step.format, step.name].find((text) => typeof text === 'string') || ''
  const condition = typeof step.condition === 'string' ? ` ${step.condition.replaceAll('_', ' ')}` : ''
  const value = step.value === undefined || step.value === null ? '' : `${condition ? ' ' : ' = '}${toJson(step.value)}`
  const target = typeof step.to === 'string' && step.to ? ` → ${step.to}` : ''
  return `${subject}${condition}${value}${target}`.trim()
}
