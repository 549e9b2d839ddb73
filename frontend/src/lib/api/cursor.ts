/** The cursor in the address of a list's next page. */
export function cursorOf(next: string | null | undefined): string | undefined {
  return next ? (new URL(next, location.origin).searchParams.get('cursor') ?? undefined) : undefined
}
