import { useDisclosure } from '@mantine/hooks'
import { lazy, Suspense, useEffect, useState } from 'react'

const Shortcuts = lazy(async () => ({ default: (await import('@/app/shortcuts')).Shortcuts }))

/** The keys that work on every page with a list; `?` shows them. */
export function ListKeys() {
  const [opened, { open, close }] = useDisclosure()
  const [isWanted, setWanted] = useState(false)
  useEffect(() => {
    const show = () => {
      setWanted(true)
      open()
    }
    const follow = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector('[role=dialog]')) return
      const acts: Record<string, (() => void) | undefined> = { j: () => step(1), k: () => step(-1), x: () => choose(false), X: () => choose(true), '/': search, '?': show }
      const act = acts[event.key]
      if (!act) return
      event.preventDefault()
      act()
    }
    document.addEventListener('keydown', follow)
    return () => document.removeEventListener('keydown', follow)
  }, [open])
  return (
    isWanted && (
      <Suspense>
        <Shortcuts opened={opened} onClose={close} />
      </Suspense>
    )
  )
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || target.closest('input:not([type=checkbox]), textarea, select') !== null)
}

/** The rows of the list in which the focus is, else of the page's last one, which is its main one. */
function rowsOfList(): HTMLElement[] {
  const lists = [...document.querySelectorAll<HTMLElement>('#content table[data-list]')]
  const list = lists.find((one) => one.contains(document.activeElement)) ?? lists.at(-1)
  return [...(list?.querySelectorAll<HTMLElement>('tbody tr[data-row]') ?? [])]
}

function step(by: 1 | -1) {
  const rows = rowsOfList()
  const current = rows.findIndex((row) => row.contains(document.activeElement))
  const next = rows[current < 0 ? 0 : current + by]
  // What opens the row, rather than the box that selects it.
  const control = next?.querySelector<HTMLElement>('a, button') ?? next?.querySelector('input')
  control?.focus({ preventScroll: true })
  next?.scrollIntoView({ block: 'nearest' })
}

function choose(through: boolean) {
  const row = rowsOfList().find((one) => one.contains(document.activeElement))
  const box = row?.querySelector('input[type=checkbox]')
  box?.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true, shiftKey: through }))
}

function search() {
  document.querySelector<HTMLInputElement>('#content input[data-search]')?.focus()
}
