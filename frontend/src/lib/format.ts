/** Numbers and times as the console writes them everywhere. */

export function count(value: number, language: string): string {
  return new Intl.NumberFormat(language).format(value)
}

/** 1.2K in little room. */
export function compact(value: number, language: string): string {
  return new Intl.NumberFormat(language, { notation: 'compact', maximumFractionDigits: 1 }).format(value)
}

export function perSecond(value: number, language: string): string {
  return new Intl.NumberFormat(language, { maximumFractionDigits: value < 0.1 ? 3 : value < 10 ? 1 : 0 }).format(value)
}

export function clock(at: Date, language: string, timeZone: string): string {
  return new Intl.DateTimeFormat(language, { timeStyle: 'medium', timeZone }).format(at)
}

export function dateAndTime(at: Date, language: string, timeZone: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'short', timeZone }).format(at)
}

/** The time alone on the present day, with the day on others, and with the year in others. */
export function moment(at: Date, now: Date, language: string, timeZone: string): string {
  const isSame = (parts: Intl.DateTimeFormatOptions) => {
    const format = new Intl.DateTimeFormat(language, { ...parts, timeZone })
    return format.format(at) === format.format(now)
  }
  if (isSame({ dateStyle: 'short' })) return clock(at, language, timeZone)
  if (!isSame({ year: 'numeric' })) return dateAndTime(at, language, timeZone)
  return new Intl.DateTimeFormat(language, { month: 'short', day: 'numeric', hour: 'numeric', minute: '2-digit', timeZone }).format(at)
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
  const format = new Intl.RelativeTimeFormat(language, { numeric: 'auto', style: 'short' })
  // Without the point of the abbreviation: it would end the sentence.
  return format.format(Math.trunc(seconds / size), unit).replaceAll('.', '')
}

/** 850 ms below a second, 1.9 s below a minute, else as a duration. */
export function elapsed(milliseconds: number, language: string): string {
  if (milliseconds >= 60_000) return duration(milliseconds / 1000, language)
  if (milliseconds >= 1000) return `${new Intl.NumberFormat(language, { maximumFractionDigits: 1 }).format(milliseconds / 1000)} s`
  return new Intl.NumberFormat(language, { style: 'unit', unit: 'millisecond', maximumFractionDigits: 0 }).format(milliseconds)
}

/** 15 min 0 s, 12 s: by the symbols of the units, which are the same in every language. */
export function duration(seconds: number, language: string): string {
  const parts: [number, string][] = [
    [Math.floor(seconds / 3600), 'h'],
    [Math.floor((seconds % 3600) / 60), 'min'],
    [Math.floor(seconds % 60), 's'],
  ]
  const first = parts.findIndex(([value]) => value > 0)
  return (first < 0 ? parts.slice(2) : parts.slice(first)).map(([value, unit]) => `${count(value, language)} ${unit}`).join(' ')
}

export function bytes(value: number, language: string): string {
  const units = ['byte', 'kilobyte', 'megabyte', 'gigabyte', 'terabyte']
  const power = value < 1 ? 0 : Math.min(Math.floor(Math.log10(value) / 3), units.length - 1)
  // Without a number for them, Intl says "0 byte".
  if (power === 0) return `${count(value, language)} B`
  return new Intl.NumberFormat(language, {
    style: 'unit',
    unit: units[power],
    unitDisplay: 'short',
    maximumFractionDigits: 1,
  }).format(value / 1000 ** power)
}
