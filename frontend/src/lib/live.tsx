import { useQueryClient } from '@tanstack/react-query'
import { createContext, useContext, useEffect, useMemo, useRef, useState, type ReactNode } from 'react'

import type { components } from '@/lib/api/schema'
import { LiveSocket, type LiveNews, type LiveState } from '@/lib/live-socket'
import { conditionKeys, conditionsByPipeline } from '@/lib/queries/conditions'
import { useWorkspace } from '@/lib/queries/session'
import { mergedSeconds, type Seconds } from '@/lib/seconds'

export type OutputState = components['schemas']['OutputState']

interface Live {
  state: LiveState
  /** Unix time of the newest news, by the server's clock: without any, charts stand still instead of showing zeros. */
  now: number
  counts: Record<string, Seconds>
  /** By pipeline and output, of the pipelines that are watched. */
  outputs: LiveNews['outputs']
  /** Of the month that is billed; null until it is known. */
  usage: LiveNews['usage']
  /** Of all pipelines of the workspace together; null until they are known. */
  rates: LiveNews['rates']
  /** What waited at the newest minute of the history; null if that is not known. */
  waiting: LiveNews['waiting']
  /** Those of the workspace for which most messages wait. */
  limits: LiveNews['limits']
  /** Differs as soon as a stream or table of Connect SQL does; empty until it is known. */
  sqlSources: LiveNews['sql_sources']
  watch: (owner: symbol, pipelines: string[]) => void
}

const Context = createContext<Live | null>(null)

const secondsKept = 310

/** The server sends the numbers of so many pipelines at once. */
export const mostWatched = 200

type Numbers = Pick<Live, 'now' | 'counts' | 'outputs' | 'usage' | 'rates' | 'waiting' | 'limits' | 'sqlSources'>
const nothing: Numbers = { now: 0, counts: {}, outputs: {}, usage: null, rates: null, waiting: null, limits: [], sqlSources: '' }

/** One socket for the whole console; pages say which pipelines they show. */
export function LiveProvider({ children }: { children: ReactNode }) {
  const client = useQueryClient()
  const workspace = useWorkspace()?.slug
  const [state, setState] = useState<LiveState>('reconnecting')
  const [numbers, setNumbers] = useState(nothing)
  const socket = useRef<LiveSocket | null>(null)
  const wanted = useRef(new Map<symbol, string[]>())

  const announce = useRef(() => socket.current?.show([...new Set([...wanted.current.values()].flat())]))

  useEffect(() => {
    if (workspace === undefined) return
    const scheme = location.protocol === 'https:' ? 'wss' : 'ws'
    const opened = new LiveSocket(`${scheme}://${location.host}/ws/live/?workspace=${encodeURIComponent(workspace)}`, {
      onState: setState,
      onNews: (news) => {
        setNumbers((before) => withNews(before, news))
        if (news.conditions) client.setQueryData(conditionKeys.all, conditionsByPipeline(news.conditions))
      },
    })
    socket.current = opened
    announce.current()
    return () => opened.close()
  }, [client, workspace])

  const value = useMemo<Live>(
    () => ({
      state,
      ...numbers,
      watch: (owner, pipelines) => {
        if (pipelines.length) wanted.current.set(owner, pipelines)
        else wanted.current.delete(owner)
        announce.current()
      },
    }),
    [state, numbers],
  )
  return <Context value={value}>{children}</Context>
}

export function useLive(): Live {
  const value = useContext(Context)
  if (!value) throw new Error('LiveProvider is missing.')
  return value
}

/** What has left every chart, and pipelines that are not watched any more, are dropped. */
function withNews(before: Numbers, { at, pipelines, outputs, usage, rates, waiting, limits, sql_sources }: LiveNews): Numbers {
  const counts = Object.entries(pipelines).map(([pipeline, seconds]) => {
    const all = Object.entries(mergedSeconds(before.counts[pipeline] ?? {}, seconds))
    return [pipeline, Object.fromEntries(all.filter(([second]) => Number(second) >= at - secondsKept))] as const
  })
  return {
    now: at,
    counts: Object.fromEntries(counts),
    outputs,
    usage: usage ?? before.usage,
    rates: rates ?? before.rates,
    waiting: waiting ?? before.waiting,
    limits,
    sqlSources: sql_sources || before.sqlSources,
  }
}

/** Asks for a history again as soon as it has a further minute. */
export function useEachMinute(refetch: () => unknown) {
  const minute = useLive().waiting?.at
  const latest = useRef(refetch)
  const loaded = useRef(minute)
  useEffect(() => {
    latest.current = refetch
  })
  useEffect(() => {
    if (minute === loaded.current) return
    loaded.current = minute
    void latest.current()
  }, [minute])
}

/** The live counts of these pipelines since they were first watched, by second. */
export function useLiveCounts(pipelines: string[]): { counts: Record<string, Seconds>; now: number } {
  const { counts, watch, now } = useLive()
  const owner = useRef(Symbol('watcher'))
  const key = pipelines.join(',')
  useEffect(() => {
    const mine = owner.current
    watch(mine, key ? key.split(',') : [])
    return () => watch(mine, [])
    // `watch` changes with every message; the wish changes only with the key.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [key])
  return { counts, now }
}
