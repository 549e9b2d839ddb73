import { autocompletion, closeBrackets } from '@codemirror/autocomplete'
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands'
import { sql, SQLDialect, type SQLNamespace } from '@codemirror/lang-sql'
import { bracketMatching, HighlightStyle, syntaxHighlighting } from '@codemirror/language'
import { linter, type Diagnostic } from '@codemirror/lint'
import { Compartment, EditorState, Prec, type Text } from '@codemirror/state'
import { EditorView, keymap, lineNumbers, placeholder } from '@codemirror/view'
import { tags } from '@lezer/highlight'
import { useEffect, useRef, type Ref } from 'react'
import { useImperativeHandle } from 'react'

import { check, type Language } from '@/features/sql/api/sql'
import { serverText } from '@/lib/texts'

/** What a page does with the editor. */
export interface Editor {
  /** The selected text, or all of it, and the number of lines before it. */
  text: () => { text: string; linesBefore: number }
  insert: (text: string) => void
  /** Puts the cursor at a place; both count from 1. */
  show: (line: number, column: number) => void
}

interface Props {
  label: string
  hint: string
  initial: string
  language: Language | undefined
  /** The columns of the streams and tables, by name. */
  names: SQLNamespace
  onChange: (text: string) => void
  onRun: () => void
  ref: Ref<Editor>
}

const look = EditorView.theme({
  '&': { fontSize: '0.875rem', backgroundColor: 'var(--mantine-color-body)', color: 'var(--mantine-color-text)' },
  '&.cm-focused': { outline: '2px solid var(--mantine-primary-color-filled)', outlineOffset: '1px' },
  '.cm-scroller': { fontFamily: 'var(--mantine-font-family-monospace)', minHeight: '9rem', maxHeight: '50vh' },
  '.cm-gutters': { backgroundColor: 'transparent', color: 'var(--mantine-color-dimmed)', border: 'none' },
  '.cm-cursor': { borderLeftColor: 'var(--mantine-color-text)' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground': {
    background: 'var(--mantine-primary-color-light-hover) !important',
  },
  '.cm-tooltip': {
    backgroundColor: 'var(--mantine-color-body)',
    color: 'var(--mantine-color-text)',
    border: '1px solid var(--mantine-color-default-border)',
  },
  '.cm-tooltip-autocomplete ul li[aria-selected]': {
    background: 'var(--mantine-primary-color-filled)',
    color: 'var(--mantine-primary-color-contrast)',
  },
  '.cm-placeholder': { color: 'var(--mantine-color-placeholder)' },
  '.cm-matchingBracket': { backgroundColor: 'var(--mantine-primary-color-light) !important' },
})

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.typeName], color: 'var(--mantine-primary-color-light-color)', fontWeight: '600' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--mantine-color-green-text)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--mantine-color-orange-text)' },
  { tag: [tags.comment], color: 'var(--mantine-color-dimmed)', fontStyle: 'italic' },
])

/** Where one writes statements: completion of words and names, and syntax errors in their place. */
export function SqlEditor({ label, hint, initial, language, names, onChange, onRun, ref }: Props) {
  const host = useRef<HTMLDivElement>(null)
  const view = useRef<EditorView | null>(null)
  const words = useRef(new Compartment())
  const handlers = useRef({ onChange, onRun })
  useEffect(() => {
    handlers.current = { onChange, onRun }
  })
  useEffect(() => {
    const run = () => {
      handlers.current.onRun()
      return true
    }
    const nonce = document.querySelector<HTMLMetaElement>('meta[name=csp-nonce]')?.content ?? ''
    const made = new EditorView({
      parent: host.current!,
      state: EditorState.create({
        doc: initial,
        extensions: [
          Prec.highest(keymap.of([{ key: 'Mod-Enter', run }])),
          keymap.of([...defaultKeymap, ...historyKeymap]),
          EditorView.cspNonce.of(nonce),
          EditorView.contentAttributes.of({ 'aria-label': label, spellcheck: 'false' }),
          EditorView.lineWrapping,
          EditorView.updateListener.of((update) => {
            if (update.docChanged) handlers.current.onChange(update.state.doc.toString())
          }),
          history(),
          lineNumbers(),
          bracketMatching(),
          closeBrackets(),
          autocompletion(),
          linter((editor) => problems(editor.state.doc), { delay: 400 }),
          syntaxHighlighting(colours),
          placeholder(hint),
          look,
          words.current.of([]),
        ],
      }),
    })
    view.current = made
    return () => made.destroy()
    // What the editor is made with stays as it is; words and names are exchanged below.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [])
  useEffect(() => {
    if (!language) return
    const dialect = SQLDialect.define({
      keywords: language.keywords.join(' ').toLowerCase(),
      builtin: language.functions.join(' ').toLowerCase(),
      types: 'varchar string integer int bigint double boolean decimal date time timestamp bytes array map struct',
    })
    const extension = sql({ dialect, schema: names, upperCaseKeywords: true })
    view.current?.dispatch({ effects: words.current.reconfigure(extension) })
  }, [language, names])
  useImperativeHandle(ref, () => ({
    text: () => {
      const { doc, selection } = view.current!.state
      const { from, to } = selection.main
      if (from === to) return { text: doc.toString(), linesBefore: 0 }
      return { text: doc.sliceString(from, to), linesBefore: doc.lineAt(from).number - 1 }
    },
    insert: (text) => {
      const { state } = view.current!
      view.current!.dispatch(state.replaceSelection(text))
      view.current!.focus()
    },
    show: (line, column) => {
      const { doc } = view.current!.state
      view.current!.dispatch({ selection: { anchor: placeOf(doc, line, column) }, scrollIntoView: true })
      view.current!.focus()
    },
  }))
  return <div ref={host} />
}

async function problems(doc: Text): Promise<Diagnostic[]> {
  const text = doc.toString()
  const failure = text.trim() ? await check(text).catch(() => null) : null
  if (!failure) return []
  const from = placeOf(doc, failure.line, failure.column ?? 1)
  const word = /^\w+|^./.exec(doc.sliceString(from, from + 100))?.[0] ?? ''
  return [{ from, to: from + word.length, severity: 'error', message: serverText(failure.message) }]
}

function placeOf(doc: Text, line: number, column: number): number {
  const at = doc.line(Math.min(line, doc.lines))
  return Math.min(at.from + column - 1, at.to)
}
