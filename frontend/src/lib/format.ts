/** Numbers and times as the console writes them everywhere. */

export function count(value: number, language: string): string {
  return new Intl.NumberFormat(language).format(value)
}

export function perSecond(value: number, language: string): string {
  return new Intl.NumberFormat(language, { maximumFractionDigits: value < 10 ? 1 : 0 }).format(value)
}

export function clock(at: Date, language: string, timeZone: string): string {
  return new Intl.DateTimeFormat(language, { timeStyle: 'medium', timeZone }).format(at)
}

export function dateAndTime(at: Date, language: string, timeZone: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'medium', timeZone }).format(at)
}

const steps: [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
]

export function ago(at: Date, now: Date, language: string): string {
  const seconds = Math.round((at.getTime() - now.getTime()) / 1000)
  const [unit, size] = steps.find(([, size]) => Math.abs(seconds) >= size) ?? ['second', 1]
  return new Intl.RelativeTimeFormat(language, { numeric: 'auto' }).format(Math.trunc(seconds / size), unit)
}
