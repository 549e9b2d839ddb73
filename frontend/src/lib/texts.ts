import { useCallback } from 'react'
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

/** English texts are their own keys: what a catalogue lacks stays English. */
export function setServerTexts(language: string, catalogue: Record<string, string>): void {
  translators[language] ??= translator(catalogue)
}

function translated(text: string, language: string): string {
  return translators[language]?.(text) ?? text
}

/** For texts that a page shows; it changes with the language. */
export function useServerTexts(): Translate {
  const { i18n: current } = useTranslation()
  return useCallback((text: string) => translated(text, current.language), [current.language])
}

/** For texts outside pages, in the language of the moment. */
export const serverText: Translate = (text) => translated(text, getI18n().language)
