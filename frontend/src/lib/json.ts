import { isInteger, isSafeNumber, parse, stringify } from 'lossless-json'

/** A number that neither a number nor a bigint of JavaScript holds as it is written. */
export class InexactNumberError extends Error {}

/**
 * The value of a JSON document, of which no number loses a digit: whole numbers that a number would round are a bigint.
 * Throws a SyntaxError for what is not JSON, and an InexactNumberError.
 */
export function parseJson(text: string): unknown {
  return parse(text, undefined, { parseNumber: exactNumber })
}

/** JSON of a value that `parseJson` may have made. */
export function toJson(value: unknown, indent?: number): string {
  return stringify(value, undefined, indent) ?? 'null'
}

/** The number that a document has in these characters. Throws an InexactNumberError. */
export function exactNumber(text: string): number | bigint {
  if (isSafeNumber(text)) return Number(text)
  if (isInteger(text)) return BigInt(text)
  throw new InexactNumberError(text)
}
