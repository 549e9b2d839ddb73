import { Textarea } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import type { Config } from '@/features/pipelines/api/pipelines'
import { InexactNumberError } from '@/lib/json'

import { parseYaml, toYaml } from './config-yaml'

interface Props {
  config: Config
  onChange: (config: Config) => void
}

/** The whole configuration as YAML, in step with the picture. */
export function ConfigText({ config, onChange }: Props) {
  const { t } = useTranslation()
  const [text, setText] = useState(() => toYaml(config))
  const [given, setGiven] = useState(config)
  const [problem, setProblem] = useState('')
  if (given !== config) {
    // It was changed in the picture.
    setGiven(config)
    setText(toYaml(config))
    setProblem('')
  }
  const change = (next: string) => {
    setText(next)
    try {
      const read = parseYaml(next)
      if (typeof read !== 'object' || read === null || Array.isArray(read)) {
        setProblem(t('flow.noMapping'))
        return
      }
      setProblem('')
      setGiven(read as Config)
      onChange(read as Config)
    } catch (error) {
      setProblem(error instanceof InexactNumberError ? t('form.inexactNumber') : error instanceof Error ? error.message : String(error))
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
