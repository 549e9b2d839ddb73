/** Sentences by dotted path of a field. */
export type FieldErrors = Record<string, string[]>

export interface ProblemBody {
  title?: string
  detail?: string
  errors?: FieldErrors
  service?: string
}

/** An error answer of the API (RFC 9457). `errors` maps dotted field paths to sentences. */
export class Problem extends Error {
  readonly errors: FieldErrors

  constructor(
    readonly status: number,
    body: ProblemBody,
  ) {
    super(body.detail ?? body.title ?? `The server answered ${status}.`)
    this.errors = body.errors ?? {}
  }
}

/** Whether the same request may succeed later: an answer of the server about it does not change, a lost connection may. */
export function mayPass(error: unknown): boolean {
  return error !== null && (!(error instanceof Problem) || error.status >= 500)
}

/** The errors at one field of a rejected request. */
export function fieldErrors(error: unknown, field: string): string | undefined {
  return error instanceof Problem ? error.errors[field]?.join(' ') : undefined
}

/** What to show, where there are no fields to show it at, for anything that was thrown. */
export function sentence(error: unknown): string {
  if (error instanceof Problem && Object.keys(error.errors).length) {
    return Object.values(error.errors).flat().join(' ')
  }
  return error instanceof Error ? error.message : String(error)
}
