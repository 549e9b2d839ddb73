/** The errors at or below a field, with paths relative to it. */
export function below(errors: Record<string, string[]>, field: string): Record<string, string[]> {
  const inside = Object.entries(errors).filter(([path]) => path === field || path.startsWith(`${field}.`))
  return Object.fromEntries(inside.map(([path, sentences]) => [path.slice(field.length + 1), sentences]))
}
