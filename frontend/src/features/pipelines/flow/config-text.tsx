import { Textarea } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { parse, stringify } from 'yaml'

import type { Config } from '@/features/pipelines/api/pipelines'

interface Props {
  config: Config
  onChange: (config: Config) => void
}

/** The whole configuration as YAML, in step with the picture. */
export function ConfigText({ config, onChange }: Props) {
  const { t } = useTranslation()
  const [text, setText] = useState(() => stringify(config))
  const [given, setGiven] = useState(config)
  const [problem, setProblem] = useState('')
  if (given !== config) {
    // It was changed in the picture.
    setGiven(config)
    setText(stringify(config))
    setProblem('')
  }
  const change = (next: string) => {
    setText(next)
    try {
      const read: unknown = parse(next)
      if (typeof read !== 'object' || read === null || Array.isArray(read)) {
        setProblem(t('flow.noMapping'))
        return
      }
      setProblem('')
      setGiven(read as Config)
      onChange(read as Config)
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
  }
  return (
    <Textarea
      label={t('flow.yaml')}
      description={t('flow.yamlHint')}
      autosize
      minRows={16}
      maxRows={40}
      spellCheck={false}
      styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 'var(--mantine-font-size-xs)' } }}
      value={text}
      error={problem}
      onChange={(event) => change(event.currentTarget.value)}
    />
  )
}
