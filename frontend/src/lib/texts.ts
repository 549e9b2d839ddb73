import { useSyncExternalStore } from 'react'
import { getI18n, useTranslation } from 'react-i18next'

/** Gives the present language's text for an English one that the server sent. */
export type Translate = (text: string) => string

const placeholder = /{{(\w+)}}/g

interface Pattern {
  matches: RegExp
  names: string[]
  text: string
}

/**
 * Looks texts up in a catalogue of English texts and their translations. A key such as "At most {{n}} items." also
 * stands for "At most 3 items.", unless a longer key does.
 */
export function translator(catalogue: Record<string, string>): Translate {
  const exact = new Map(Object.entries(catalogue))
  const patterns = Object.entries(catalogue)
    .filter(([english]) => namesIn(english).length > 0)
    .sort(([a], [b]) => b.replace(placeholder, '').length - a.replace(placeholder, '').length)
    .map(([english, text]): Pattern => ({ matches: patternOf(english), names: namesIn(english), text }))
  return (text) => exact.get(text.trim()) ?? byPattern(patterns, text.trim()) ?? text
}

function byPattern(patterns: Pattern[], text: string): string | undefined {
  for (const pattern of patterns) {
    const values = pattern.matches.exec(text)?.slice(1)
    if (!values) continue
    return pattern.text.replace(placeholder, (_, name: string) => values[pattern.names.indexOf(name)] ?? '')
  }
  return undefined
}

function patternOf(english: string): RegExp {
  const literals = english.split(/{{\w+}}/).map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
  return new RegExp(`^${literals.join('(.+?)')}$`, 's')
}

function namesIn(english: string): string[] {
  return [...english.matchAll(placeholder)].map(([, name]) => name ?? '')
}

const translators: Record<string, Translate> = {}
const listeners = new Set<() => void>()
let loaded: Promise<void> = Promise.resolve()

/**
 * Translates the server's texts once the language's catalogue has come. English texts are their own keys: what a
 * catalogue lacks, or one that cannot be loaded, stays English.
 */
export function loadServerTexts(language: string, catalogue: Promise<Record<string, string>>): void {
  const translate = async () => {
    const texts = await catalogue
    translators[language] ??= translator(texts)
    for (const listener of listeners) listener()
  }
  loaded = translate().catch(() => undefined)
}

/** Settles when the texts that were asked for last are there, or are not to be had. */
export const serverTextsLoaded = () => loaded

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

/** For texts that a page shows; it changes with the language, and when the language's catalogue has come. */
export function useServerTexts(): Translate {
  const { language } = useTranslation().i18n
  const translate = useSyncExternalStore(subscribe, () => translators[language])
  return translate ?? unchanged
}

const unchanged: Translate = (text) => text

/** For texts outside pages, in the language of the moment. */
export const serverText: Translate = (text) => translators[getI18n().language]?.(text) ?? text
