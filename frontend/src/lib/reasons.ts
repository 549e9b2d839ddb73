import type { TFunction } from 'i18next'

/** What people read for a reason: Headrace's own have labels; another system's answer is quoted; others are shown as they are. */
export function reasonLabel(t: TFunction, reason: string): string {
  const [, system, code] = /^(http|kafka)_(.+)$/.exec(reason) ?? []
  if (system && code) return t(`reasons.${system}`, { code: code.replaceAll('_', ' '), defaultValue: reason })
  return t(`reasons.${reason}`, { defaultValue: reason })
}
