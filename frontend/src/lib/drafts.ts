import type { RJSFSchema } from '@rjsf/utils'

import { parseJson, toJson } from '@/lib/json'
import { childrenOf, shapesOf } from '@/lib/json-schema'

/** What the server sends in place of a stored secret; sent back, it keeps the secret. */
export const mask = '********'

const prefix = 'draft:'
const keptMilliseconds = 14 * 86_400_000

/** Whose form it is, and of what: an id, or "new" with what tells new things apart. */
export interface DraftPlace {
  user: string
  workspace: string
  kind: string
  thing: string
}

/** What was typed in a form and not saved. */
export interface Draft {
  /** When it was typed, in milliseconds of Unix time. */
  at: number
  /** The version of the server's copy that was changed; none for a new thing. */
  base?: string
  /** Whether secrets were typed, which are not kept. */
  lacksSecrets: boolean
  value: unknown
}

const keyOf = ({ user, workspace, kind, thing }: DraftPlace) => prefix + JSON.stringify([user, workspace, kind, thing])

/** The browser's storage; none where it is forbidden. */
export function browserStorage(): Storage | undefined {
  try {
    return window.localStorage
  } catch {
    return undefined
  }
}

/** The draft of a form that holds `form`, unless it is too old or cannot be what such a form held. */
export function readDraft(storage: Storage | undefined, place: DraftPlace, now: number, form: object): Draft | undefined {
  const draft = guarded(() => freshDraft(storage?.getItem(keyOf(place)), now))
  return draft && isLike(draft.value as object, form) ? draft : undefined
}

function isLike(value: object, form: object): boolean {
  const fields = value as Record<string, unknown>
  return Object.entries(form).every(([name, own]) => {
    if (own === null || own === undefined) return true
    const kept = fields[name]
    return typeof kept === typeof own && kept !== null && Array.isArray(kept) === Array.isArray(own)
  })
}

/** Keeps a draft in place of the former one, and drops those that are too old. Says whether it is kept. */
export function writeDraft(storage: Storage | undefined, place: DraftPlace, draft: Draft): boolean {
  return (
    guarded(() => {
      if (!storage) return false
      dropOld(storage, draft.at)
      storage.setItem(keyOf(place), toJson(draft))
      return true
    }) ?? false
  )
}

export function removeDraft(storage: Storage | undefined, place: DraftPlace): void {
  guarded(() => storage?.removeItem(keyOf(place)))
}

function dropOld(storage: Storage, now: number) {
  const keys = Array.from({ length: storage.length }, (_, index) => storage.key(index))
  for (const key of keys) {
    if (key?.startsWith(prefix) && !freshDraft(storage.getItem(key), now)) storage.removeItem(key)
  }
}

function freshDraft(text: string | null | undefined, now: number): Draft | undefined {
  const draft = guarded(() => parseJson(text ?? ''))
  return isDraft(draft) && now - draft.at < keptMilliseconds ? draft : undefined
}

function isDraft(value: unknown): value is Draft {
  if (typeof value !== 'object' || value === null) return false
  const { at, base, lacksSecrets, value: typed } = value as Partial<Record<keyof Draft, unknown>>
  const isKnown = typeof at === 'number' && typeof lacksSecrets === 'boolean' && (base === undefined || typeof base === 'string')
  return isKnown && typeof typed === 'object' && typed !== null
}

/** A form works without its draft: the storage may be full, broken or forbidden. */
function guarded<T>(act: () => T): T | undefined {
  try {
    return act()
  } catch {
    return undefined
  }
}

/**
 * A value without the secrets that its schema marks, at any depth and in whichever variant, and whether there were
 * any. The mask of a stored secret is none. In lists and under free names an empty text stays in a secret's place.
 */
export function withoutSecrets<T>(value: T, schema: RJSFSchema): { value: T; lacksSecrets: boolean } {
  let lacksSecrets = false

  function kept(node: unknown, places: RJSFSchema[]): unknown {
    const shapes = shapesOf(schema, places)
    if (shapes.some(isSecret) && !holdsNone.includes(node)) {
      lacksSecrets = true
      return leftOut
    }
    if (Array.isArray(node)) return node.map((item, index) => orEmpty(kept(item, childrenOf(shapes, index))))
    if (typeof node !== 'object' || node === null) return node
    const isField = (name: string) => shapes.some(({ properties = {} }) => Object.hasOwn(properties, name))
    const entries = Object.entries(node).map(([name, child]): [string, unknown] => {
      const rest = kept(child, childrenOf(shapes, name))
      return [name, isField(name) ? rest : orEmpty(rest)]
    })
    return Object.fromEntries(entries.filter(([, rest]) => rest !== leftOut))
  }

  return { value: kept(value, [schema]) as T, lacksSecrets }
}

const leftOut = Symbol()
const orEmpty = (rest: unknown) => (rest === leftOut ? '' : rest)
const holdsNone: unknown[] = [mask, '', null, undefined]

function isSecret(schema: RJSFSchema): boolean {
  return (schema as { writeOnly?: boolean }).writeOnly === true || schema.format === 'password'
}
