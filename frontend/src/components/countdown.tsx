import { useEffect, useState } from 'react'
import { useTranslation } from 'react-i18next'

import { duration } from '@/lib/format'

/** The time left until a moment, second by second; nothing once it is over. */
export function Countdown({ until }: { until: string }) {
  const { i18n } = useTranslation()
  const [now, setNow] = useState(() => Date.now())
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [])
  const left = Math.max(0, Math.ceil((new Date(until).getTime() - now) / 1000))
  return <span style={{ fontVariantNumeric: 'tabular-nums' }}>{duration(left, i18n.language)}</span>
}
