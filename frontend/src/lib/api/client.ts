import createClient, { type Middleware } from 'openapi-fetch'

import { parseJson, toJson } from '@/lib/json'
import { serverText, serverTextsLoaded } from '@/lib/texts'

import { Problem, type ProblemBody } from './problem'
import type { paths } from './schema'

function cookie(name: string): string {
  const pair = document.cookie.split('; ').find((candidate) => candidate.startsWith(`${name}=`))
  return pair?.slice(name.length + 1) ?? ''
}

/** Sends the CSRF token and the chosen workspace; turns every error answer into a Problem. */
const conventions: Middleware = {
  onRequest({ request }) {
    if (request.method !== 'GET') request.headers.set('X-CSRFToken', cookie('csrftoken'))
    const workspace = localStorage.getItem('workspace')
    if (workspace) request.headers.set('Headrace-Workspace', workspace)
    return request
  },
  async onResponse({ response }) {
    if (response.ok) return response
    const body = (await response
      .clone()
      .json()
      .catch(() => ({ title: response.statusText }))) as ProblemBody
    await serverTextsLoaded()
    throw new Problem(response.status, translated(body))
  },
}

/** The server speaks English; where a sentence is known, the reader's language takes its place. */
function translated({ detail, errors, ...body }: ProblemBody): ProblemBody {
  const sentences = Object.entries(errors ?? {}).map(([path, texts]) => [path, texts.map(serverText)] as const)
  return { ...body, detail: detail && serverText(detail), errors: Object.fromEntries(sentences) }
}

/** An address for a link, which cannot send the header that names the workspace. */
export function linkTo(path: string, query: Record<string, string>): string {
  const workspace = localStorage.getItem('workspace')
  return `${path}?${new URLSearchParams({ ...query, ...(workspace && { workspace }) })}`
}

export const api = createClient<paths>({ baseUrl: '/', bodySerializer: toJson })
api.use(conventions)

/** The data of an answer; error answers have become a Problem before this. */
export async function dataOf<T>(answer: Promise<{ data?: T }>): Promise<T> {
  return (await answer).data as T
}

/** The same of an answer that was asked for as a text: with every digit of the numbers in configurations. */
export async function exactDataOf<T>(answer: Promise<{ data?: string }>): Promise<T> {
  return parseJson((await answer).data ?? 'null') as T
}
