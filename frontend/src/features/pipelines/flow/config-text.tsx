import { Skeleton, Textarea } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import type { Config } from '@/features/pipelines/api/pipelines'
import { InexactNumberError } from '@/lib/json'
import { useConnectors, type Connector } from '@/lib/queries/connectors'
import { isCut } from '@/lib/queries/listing'

import { parseYaml, toYaml, UnknownConnectorError, withConnectorIds, withConnectorNames } from './config-yaml'

interface Props {
  config: Config
  onChange: (config: Config) => void
}

/** The whole configuration as YAML, in step with the picture, with connectors by name. */
export function ConfigText(props: Props) {
  const { data, isError } = useConnectors()
  const isLoaded = data !== undefined && (!data.hasMore || isCut(data))
  if (!isLoaded && !isError) return <Skeleton height={320} />
  return <NamedConfigText {...props} connectors={data?.rows ?? []} />
}

function NamedConfigText({ config, connectors, onChange }: Props & { connectors: Connector[] }) {
  const { t } = useTranslation()
  const written = () => toYaml(withConnectorNames(config, connectors))
  const [text, setText] = useState(written)
  const [given, setGiven] = useState(config)
  const [problem, setProblem] = useState('')
  if (given !== config) {
    // It was changed in the picture.
    setGiven(config)
    setText(written())
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
      const changed = withConnectorIds(read as Config, connectors)
      setProblem('')
      setGiven(changed)
      onChange(changed)
    } catch (error) {
      setProblem(sentence(error))
    }
  }
  const sentence = (error: unknown) => {
    if (error instanceof InexactNumberError) return t('form.inexactNumber')
    if (error instanceof UnknownConnectorError) return t('flow.unknownConnector', { name: error.message })
    return error instanceof Error ? error.message : String(error)
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
