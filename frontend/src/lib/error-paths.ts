/** The errors at or below a field, with paths relative to it. */
export function below(errors: Record<string, string[]>, field: string): Record<string, string[]> {
  const found = Object.entries(errors).filter(([path]) => path === field || path.startsWith(`${field}.`))
  return Object.fromEntries(found.map(([path, said]) => [path.slice(field.length + 1), said]))
}
