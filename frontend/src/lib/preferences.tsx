import { createContext, useContext, useMemo, useState, type ReactNode } from 'react'

/** "local" is the reader's own zone. */
export type TimeZoneChoice = 'local' | 'UTC'

interface Preferences {
  timeZoneChoice: TimeZoneChoice
  timeZone: string
  setTimeZoneChoice: (choice: TimeZoneChoice) => void
}

const Context = createContext<Preferences | null>(null)

export function PreferencesProvider({ children }: { children: ReactNode }) {
  const [timeZoneChoice, choose] = useState<TimeZoneChoice>(localStorage.getItem('timeZone') === 'UTC' ? 'UTC' : 'local')
  const value = useMemo(
    () => ({
      timeZoneChoice,
      timeZone: timeZoneChoice === 'UTC' ? 'UTC' : Intl.DateTimeFormat().resolvedOptions().timeZone,
      setTimeZoneChoice: (choice: TimeZoneChoice) => {
        localStorage.setItem('timeZone', choice)
        choose(choice)
      },
    }),
    [timeZoneChoice],
  )
  return <Context value={value}>{children}</Context>
}

export function usePreferences(): Preferences {
  const value = useContext(Context)
  if (!value) throw new Error('PreferencesProvider is missing.')
  return value
}
