import { createContext, useContext, useEffect, useMemo, useRef, useState, type ReactNode } from 'react'

import type { components } from '@/lib/api/schema'

export type LiveState = 'live' | 'reconnecting' | 'stale'

/** Counts by Unix second, then by event. */
export type Seconds = Record<string, Record<string, number>>

/** Circuit breakers by pipeline and output. */
type Breakers = Record<string, Record<string, components['schemas']['Breaker']>>

interface CountsMessage {
  type: 'counts'
  pipelines: Record<string, Seconds>
  breakers: Breakers
}

interface StaleMessage {
  type: 'stale'
  reason: string
}

interface Live {
  state: LiveState
  since: Date | null
  counts: Record<string, Seconds>
  /** Of the pipelines that are watched. */
  breakers: Breakers
  watch: (owner: symbol, pipelines: string[]) => void
}

const Context = createContext<Live | null>(null)

const secondsKept = 310
const firstDelay = 500
const longestDelay = 10_000
const expired = 4401

/** One socket for the whole console; pages say which pipelines they show. */
export function LiveProvider({ children }: { children: ReactNode }) {
  const [state, setState] = useState<LiveState>('reconnecting')
  const [since, setSince] = useState<Date | null>(null)
  const [counts, setCounts] = useState<Record<string, Seconds>>({})
  const [breakers, setBreakers] = useState<Breakers>({})
  const socket = useRef<WebSocket | null>(null)
  const wanted = useRef(new Map<symbol, string[]>())

  const announce = useRef(() => {
    if (socket.current?.readyState !== WebSocket.OPEN) return
    const pipelines = [...new Set([...wanted.current.values()].flat())]
    socket.current.send(JSON.stringify({ pipelines }))
  })

  useEffect(() => {
    let delay = firstDelay
    let timer: ReturnType<typeof setTimeout>
    let closed = false
    const connect = () => {
      const scheme = location.protocol === 'https:' ? 'wss' : 'ws'
      const opened = new WebSocket(`${scheme}://${location.host}/ws/live/`)
      socket.current = opened
      opened.onopen = () => announce.current()
      opened.onmessage = (event: MessageEvent<string>) => {
        const message = JSON.parse(event.data) as CountsMessage | StaleMessage
        if (message.type === 'stale') {
          setState('stale')
          return
        }
        delay = firstDelay
        setState('live')
        setSince(new Date())
        setCounts((before) => merged(before, message.pipelines))
        setBreakers(message.breakers)
      }
      opened.onclose = (event) => {
        if (closed) return
        setState('reconnecting')
        if (event.code === expired) return
        timer = setTimeout(connect, delay)
        delay = Math.min(delay * 2, longestDelay)
      }
    }
    connect()
    return () => {
      closed = true
      clearTimeout(timer)
      socket.current?.close()
    }
  }, [])

  const value = useMemo<Live>(
    () => ({
      state,
      since,
      counts,
      breakers,
      watch: (owner, pipelines) => {
        if (pipelines.length) wanted.current.set(owner, pipelines)
        else wanted.current.delete(owner)
        announce.current()
      },
    }),
    [state, since, counts, breakers],
  )
  return <Context value={value}>{children}</Context>
}

export function useLive(): Live {
  const value = useContext(Context)
  if (!value) throw new Error('LiveProvider is missing.')
  return value
}

/** Newer counts replace older ones of the same second; what has left every chart is dropped. */
function merged(before: Record<string, Seconds>, news: Record<string, Seconds>): Record<string, Seconds> {
  const oldest = Date.now() / 1000 - secondsKept
  return Object.fromEntries(
    Object.entries(news).map(([pipeline, seconds]) => {
      const all = Object.entries({ ...before[pipeline], ...seconds })
      return [pipeline, Object.fromEntries(all.filter(([second]) => Number(second) >= oldest))]
    }),
  )
}

/** The live counts of these pipelines since they were first watched, by second. */
export function useLiveCounts(pipelines: string[]): { counts: Record<string, Seconds>; now: number } {
  const { counts, watch, state, since } = useLive()
  const owner = useRef(Symbol('watcher'))
  const key = pipelines.join(',')
  useEffect(() => {
    const mine = owner.current
    watch(mine, key ? key.split(',') : [])
    return () => watch(mine, [])
    // `watch` changes with every message; the wish changes only with the key and after a reconnect.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [key, state])
  // The time of the newest news: without any, charts stand still instead of showing zeros.
  return { counts, now: Math.floor((since?.getTime() ?? 0) / 1000) }
}
