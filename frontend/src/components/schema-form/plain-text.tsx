import type { ReactNode } from 'react'

/** Takes the place of the form library's Markdown, which no text of a schema uses and which weighs 28 kB. */
export function Markdown({ children }: { children?: ReactNode }) {
  return <>{children}</>
}
