import { useDebouncedValue } from '@mantine/hooks'
import { useMemo } from 'react'
import { useSearchParams } from 'react-router'

import { typing } from '@/lib/queries/listing'

/** Filters of a list, as they stand in the address. */
export type Filter = Record<string, string>

/** Parameters of the address that are no filters. */
const others = ['sort']

/** A search of a list, which the address keeps by this name, and as it is once nothing more is typed. */
export function useSearch(name = 'search'): { typed: string; settled: string; set: (typed: string) => void } {
  const { filter, set } = useFilter()
  const typed = filter[name] ?? ''
  const [settled] = useDebouncedValue(typed, typing)
  return { typed, settled, set: (next) => set(name, next) }
}

/** A list's filters, kept in the address so that they can be shared and gone back to. */
export function useFilter(initial: Filter = {}): { filter: Filter; set: (name: string, value: string | null) => void } {
  const [parameters, setParameters] = useSearchParams()
  const key = parameters.toString()
  const filter = useMemo(() => {
    const chosen = Object.fromEntries([...new URLSearchParams(key)].filter(([name, value]) => value !== 'any' && !others.includes(name)))
    const missing = Object.entries(initial).filter(([name]) => !new URLSearchParams(key).has(name))
    return { ...Object.fromEntries(missing), ...chosen }
    // The initial filter is a constant of the page.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [key])
  const set = (name: string, value: string | null) =>
    setParameters(
      (before) => {
        const next = new URLSearchParams(before)
        if (value) next.set(name, value)
        else if (name in initial) next.set(name, 'any')
        else next.delete(name)
        return next
      },
      { replace: true },
    )
  return { filter, set }
}
