import { experimental_streamedQuery as streamedQuery } from '@tanstack/react-query'

import { cursorOf } from '@/lib/api/cursor'

/** So many rows of a list are loaded; of longer ones the server finds the rest by a search. */
export const mostRows = 5000
/** The first rows shall be there soon. */
const pageSize = 200

interface Page<Row> {
  results: Row[]
  next?: string | null
  count: number
}

/** A list as far as it is loaded. */
export interface Listing<Row> {
  rows: Row[]
  /** Of all that match, also of those that are not loaded. */
  count: number
  hasMore: boolean
}

/** Loads page after page up to the limit; the rows are there as they arrive. */
export function listed<Row>(pageAt: (query: { cursor?: string; page_size: number }) => Promise<Page<Row>>) {
  return streamedQuery<Page<Row>, Listing<Row>>({
    streamFn: () => pagesOf(pageAt),
    // When it is asked for again, the former rows stay until all have come.
    refetchMode: 'replace',
    initialValue: { rows: [], count: 0, hasMore: false },
    reducer: ({ rows }, { results, count, next }) => ({ rows: [...rows, ...results], count, hasMore: Boolean(next) }),
  })
}

async function* pagesOf<Row>(pageAt: (query: { cursor?: string; page_size: number }) => Promise<Page<Row>>) {
  let cursor: string | undefined
  let loaded = 0
  do {
    const page = await pageAt({ cursor, page_size: pageSize })
    yield page
    loaded += page.results.length
    cursor = cursorOf(page.next)
  } while (cursor && loaded < mostRows)
}

/** Whether there are more than are ever loaded. */
export const isCut = (listing: Listing<unknown> | undefined) => listing !== undefined && listing.hasMore && listing.rows.length >= mostRows

/** Milliseconds after the last letter, when the server is asked for what was typed. */
export const typing = 250
