import { QueryClient, QueryObserver } from '@tanstack/react-query'
import { expect, test, vi } from 'vitest'

import { isCut, listed, mostRows, type Listing } from './listing'

interface Asked {
  cursor?: string
  page_size: number
}

/** A server with so many rows, whose cursor is the number of the first one. */
function server(count: number, failsAt?: number) {
  return vi.fn(({ cursor, page_size }: Asked) => {
    const first = Number(cursor ?? 0)
    if (first === failsAt) return Promise.reject(new Error('The server is away.'))
    const last = Math.min(first + page_size, count)
    const results = Array.from({ length: last - first }, (_, index) => first + index)
    return Promise.resolve({ results, count, next: last < count ? `/api/v1/rows/?cursor=${last}&page_size=${page_size}` : null })
  })
}

const client = () => new QueryClient({ defaultOptions: { queries: { retry: false } } })
const load = (pageAt: ReturnType<typeof server>, queries = client()) => queries.fetchQuery({ queryKey: ['rows'], queryFn: listed(pageAt) })

test('all pages are loaded, one after the other', async () => {
  const pageAt = server(450)
  const listing = await load(pageAt)
  expect([listing.rows.length, listing.rows[449], listing.count, listing.hasMore]).toEqual([450, 449, 450, false])
  expect(pageAt.mock.calls.map(([{ cursor }]) => cursor)).toEqual([undefined, '200', '400'])
  expect(isCut(listing)).toBe(false)
})

test('a list without rows is one that is complete', async () => {
  expect(await load(server(0))).toEqual({ rows: [], count: 0, hasMore: false })
})

test('more rows than the limit are cut, and their number is known', async () => {
  const pageAt = server(mostRows + 1)
  const listing = await load(pageAt)
  expect([listing.rows.length, listing.count, isCut(listing)]).toEqual([mostRows, mostRows + 1, true])
  expect(pageAt).toHaveBeenCalledTimes(mostRows / 200)
  expect(isCut(await load(server(mostRows)))).toBe(false)
})

test('rows are there as they arrive, and stay until a second load has all', async () => {
  const queries = client()
  const seen: (number | undefined)[] = []
  const observer = new QueryObserver<Listing<number>>(queries, { queryKey: ['rows'], queryFn: listed(server(450)) })
  const stop = observer.subscribe(({ data }) => seen.push(data?.rows.length))
  await vi.waitFor(() => expect(observer.getCurrentResult().fetchStatus).toBe('idle'))
  expect([...new Set(seen)].filter((length) => length !== undefined)).toEqual([200, 400, 450])
  seen.length = 0
  await observer.refetch()
  expect(new Set(seen)).toEqual(new Set([450]))
  stop()
})

test('rows that came before an error are not taken for all', async () => {
  const queries = client()
  await expect(load(server(450, 200), queries)).rejects.toThrow('The server is away.')
  const listing = queries.getQueryData<Listing<number>>(['rows'])
  expect([listing?.rows.length, listing?.hasMore, isCut(listing)]).toEqual([200, true, false])
})
