/** Numbers and times as the console writes them everywhere. */

export function count(value: number, language: string): string {
  return new Intl.NumberFormat(language).format(value)
}

export function perSecond(value: number, language: string): string {
  return new Intl.NumberFormat(language, { maximumFractionDigits: value < 0.1 ? 3 : value < 10 ? 1 : 0 }).format(value)
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

/** 15 min 0 s, 12 s. */
export function duration(seconds: number, language: string): string {
  const write = (value: number, unit: string) =>
    new Intl.NumberFormat(language, { style: 'unit', unit, unitDisplay: 'short' }).format(value)
  const parts: [number, string][] = [
    [Math.floor(seconds / 3600), 'hour'],
    [Math.floor((seconds % 3600) / 60), 'minute'],
    [Math.floor(seconds % 60), 'second'],
  ]
  const first = parts.findIndex(([value]) => value > 0)
  return (first < 0 ? parts.slice(2) : parts.slice(first)).map(([value, unit]) => write(value, unit)).join(' ')
}

export function bytes(value: number, language: string): string {
  const units = ['byte', 'kilobyte', 'megabyte', 'gigabyte', 'terabyte']
  const power = value < 1 ? 0 : Math.min(Math.floor(Math.log10(value) / 3), units.length - 1)
  return new Intl.NumberFormat(language, {
    style: 'unit',
    unit: units[power],
    unitDisplay: 'short',
    maximumFractionDigits: 1,
  }).format(value / 1000 ** power)
}
