import { api } from '@/lib/api/client'

import type { Line } from './sql'

/** Executes statements, and gives what they answer as it comes; the signal ends a query. */
export async function* streamed(text: string, fromBeginning: boolean, signal: AbortSignal): AsyncGenerator<Line> {
  const { data } = await api.POST('/api/v1/sql/stream/', {
    body: { text, from_beginning: fromBeginning },
    parseAs: 'stream',
    signal,
  })
  if (!data) return
  for await (const line of linesOf(data)) yield JSON.parse(line) as Line
}

async function* linesOf(stream: ReadableStream<BufferSource>): AsyncGenerator<string> {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split('\n')
    rest = lines.pop() ?? ''
    yield* lines
  }
}
