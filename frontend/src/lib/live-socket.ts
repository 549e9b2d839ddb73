import type { components } from '@/lib/api/schema'

type Schemas = components['schemas']
export type LiveNews = Schemas['LiveNews']
type Message = LiveNews | Schemas['LiveStale']

/** Live; connecting, with growing delays; or open without news. */
export type LiveState = 'live' | 'reconnecting' | 'stale'

export const firstDelay = 500
export const longestDelay = 10_000
/** The server sends every second: a socket that is silent for longer shows what is no longer so. */
export const silence = 4000
/** A connection that was cut without a word is never closed by the browser itself. */
export const lost = 12_000
const expired = 4401

interface Listener {
  onState: (state: LiveState) => void
  onNews: (news: LiveNews) => void
}

/** The socket of `/ws/live/`: it reconnects when it is lost, and rests while nobody looks at the page. */
export class LiveSocket {
  private socket: WebSocket | null = null
  private pipelines: string[] = []
  private delay = firstDelay
  private heardAt = 0
  private state: LiveState = 'reconnecting'
  private timer: ReturnType<typeof setTimeout> | undefined
  private readonly watchdog: ReturnType<typeof setInterval>

  constructor(
    private readonly address: string,
    private readonly listener: Listener,
  ) {
    this.watchdog = setInterval(() => this.watch(), 1000)
    document.addEventListener('visibilitychange', this.follow)
    this.follow()
  }

  /** The pipelines that are on screen. */
  show(pipelines: string[]) {
    this.pipelines = pipelines
    if (this.socket?.readyState === WebSocket.OPEN) {
      const shown: Schemas['LiveShownRequest'] = { pipelines }
      this.socket.send(JSON.stringify(shown))
    }
  }

  close() {
    clearInterval(this.watchdog)
    document.removeEventListener('visibilitychange', this.follow)
    this.rest()
  }

  /** Connects when the page is looked at, and disconnects when it is hidden. */
  private readonly follow = () => {
    if (document.hidden) this.rest()
    else if (!this.socket) this.connect()
  }

  private rest() {
    clearTimeout(this.timer)
    const socket = this.socket
    this.socket = null
    socket?.close()
    this.become('reconnecting')
  }

  private connect() {
    const socket = new WebSocket(this.address)
    this.socket = socket
    this.heardAt = Date.now()
    socket.onopen = () => this.show(this.pipelines)
    socket.onmessage = (event: MessageEvent<string>) => this.receive(JSON.parse(event.data) as Message)
    socket.onclose = (event) => {
      if (this.socket !== socket) return
      this.socket = null
      this.become('reconnecting')
      // Without a session there is nothing to connect for: the page asks to sign in again.
      if (event.code === expired) return
      this.timer = setTimeout(this.follow, this.delay)
      this.delay = Math.min(this.delay * 2, longestDelay)
    }
  }

  private receive(message: Message) {
    this.heardAt = Date.now()
    if (message.type === 'stale') {
      this.become('stale')
      return
    }
    this.delay = firstDelay
    this.become('live')
    this.listener.onNews(message)
  }

  private watch() {
    if (!this.socket) return
    const silent = Date.now() - this.heardAt
    if (silent > silence && this.state === 'live') this.become('stale')
    if (silent > lost) this.socket.close()
  }

  private become(state: LiveState) {
    if (state === this.state) return
    this.state = state
    this.listener.onState(state)
  }
}
