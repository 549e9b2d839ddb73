/** The cursor in the address of a list's next page. */
export function cursorOf(next: string | null | undefined): string | undefined {
  return next ? (new URL(next, location.origin).searchParams.get('cursor') ?? undefined) : undefined
}

/** Asks again at this interval while only the newest page is shown: all pages that are loaded would be asked for. */
export function onlyAtTop(interval: number) {
  return ({ state }: { state: { data?: { pages: unknown[] } } }) => ((state.data?.pages.length ?? 1) > 1 ? false : interval)
}
