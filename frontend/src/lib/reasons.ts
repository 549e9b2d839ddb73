import type { TFunction } from 'i18next'

/** What people read for a reason: a label of its own; or another system's answer, `{system}_{code}`, quoted; or the word itself. */
export function reasonLabel(t: TFunction, reason: string): string {
  const [, system = '', code = ''] = /^([a-z0-9]+)_(.+)$/.exec(reason) ?? []
  const labels = system ? [`reasons.${reason}`, `answers.${system}`, 'answers.other'] : [`reasons.${reason}`]
  return t(labels, { system, code: code.replaceAll('_', ' '), defaultValue: reason })
}
