import { afterEach, beforeEach, expect, test, vi } from 'vitest'

import { firstDelay, LiveSocket, longestDelay, lost, silence, type LiveState } from './live-socket'

const nothing = () => undefined

/** The browser's end of a connection, without a server. */
class Connection {
  static opened: Connection[] = []
  static readonly OPEN = 1
  readyState = 0
  sent: string[] = []
  onopen: () => void = nothing
  onmessage: (event: { data: string }) => void = nothing
  onclose: (event: { code: number }) => void = nothing

  constructor() {
    Connection.opened.push(this)
  }

  open() {
    this.readyState = Connection.OPEN
    this.onopen()
  }

  send(text: string) {
    this.sent.push(text)
  }

  tell(message: object) {
    this.onmessage({ data: JSON.stringify(message) })
  }

  close(code = 1000) {
    this.readyState = 3
    this.onclose({ code })
  }
}

let states: LiveState[]
let socket: LiveSocket
let isHidden = false
const newest = () => Connection.opened[Connection.opened.length - 1] as Connection

function hide(value: boolean) {
  isHidden = value
  document.dispatchEvent(new Event('visibilitychange'))
}

beforeEach(() => {
  vi.useFakeTimers()
  vi.stubGlobal('WebSocket', Connection)
  vi.spyOn(document, 'hidden', 'get').mockImplementation(() => isHidden)
  Connection.opened = []
  states = []
  socket = new LiveSocket('ws://here/ws/live/', { onState: (state) => states.push(state), onNews: nothing })
  newest().open()
})

afterEach(() => {
  socket.close()
  isHidden = false
  vi.useRealTimers()
  vi.restoreAllMocks()
  vi.unstubAllGlobals()
})

test('says what is shown again whenever it connects', () => {
  socket.show(['a'])
  newest().close()
  vi.advanceTimersByTime(firstDelay)
  newest().open()
  expect(newest().sent).toEqual(['{"pipelines":["a"]}'])
})

test('a silent connection is stale, and is replaced', () => {
  newest().tell({ type: 'news' })
  expect(states).toEqual(['live'])
  vi.advanceTimersByTime(silence + 1000)
  expect(states).toEqual(['live', 'stale'])
  vi.advanceTimersByTime(lost)
  expect(Connection.opened.length).toBe(2)
  newest().open()
  newest().tell({ type: 'news' })
  expect(states).toEqual(['live', 'stale', 'reconnecting', 'live'])
})

test('reconnects ever more slowly, and at once after news', () => {
  for (let times = 0; times < 8; times++) {
    newest().close()
    vi.advanceTimersByTime(longestDelay)
  }
  const before = Connection.opened.length
  newest().close()
  vi.advanceTimersByTime(longestDelay - 1)
  expect(Connection.opened.length).toBe(before)
  vi.advanceTimersByTime(1)
  newest().open()
  newest().tell({ type: 'news' })
  newest().close()
  vi.advanceTimersByTime(firstDelay)
  expect(Connection.opened.length).toBe(before + 2)
})

test('does not reconnect without a session', () => {
  newest().close(4401)
  vi.advanceTimersByTime(60_000)
  expect(Connection.opened.length).toBe(1)
})

test('rests in a hidden tab', () => {
  hide(true)
  vi.advanceTimersByTime(60_000)
  expect(Connection.opened.length).toBe(1)
  hide(false)
  expect(Connection.opened.length).toBe(2)
})
