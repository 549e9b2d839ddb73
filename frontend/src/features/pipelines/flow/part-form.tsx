import { Select, Stack } from '@mantine/core'
import type { RJSFSchema } from '@rjsf/utils'
import { useMemo } from 'react'
import { useTranslation } from 'react-i18next'

import { ListExtent } from '@/components/list-extent'
import { SchemaForm } from '@/components/schema-form'
import { Loaded } from '@/components/states'
import { useMessageFields, usePipelineSchema } from '@/features/pipelines/api/pipelines'
import { below } from '@/lib/error-paths'
import { useConnectors, useConnectorTypes } from '@/lib/queries/connectors'
import { useServerTexts } from '@/lib/texts'

import { choicesOf, partSchema } from './part-schema'
import type { Part } from './parts'

interface Props {
  /** The pipeline whose messages tell which fields there are; none before it is saved. */
  pipeline?: string
  part: Part
  /** `isTyped` is false where the form only filled in what the schema says. */
  onChange: (value: Part['value'], isTyped: boolean) => void
  onSubmit: () => void
  /** Of the whole configuration, by path. */
  errors: Record<string, string[]>
}

/** The id of a field's element in the form of its part. */
export function fieldIdOf(path: string): string {
  return `config_${path.replaceAll('.', '_')}`
}

/** What is configured at one node, as a form made of its schema. */
export function PartForm({ pipeline, part, onChange, onSubmit, errors }: Props) {
  const { t } = useTranslation()
  const schema = usePipelineSchema()
  const connectors = useConnectors()
  const types = useConnectorTypes()
  const fields = useMessageFields(pipeline)
  const { path, kind, value } = part
  const shown = useMemo(
    () => schema.data && partSchema(schema.data, path, { type: value.type }),
    [schema.data, path, value.type],
  )
  const context = useMemo(
    () => ({ connectors: connectors.data?.rows, types: types.data, messageFields: fields.data }),
    [connectors.data, types.data, fields.data],
  )
  const uiSchema = useMemo(() => ({ index: { items: { 'ui:title': t('flow.field') } } }), [t])
  const all = schema.data && connectors.data && types.data && shown
  return (
    <Loaded query={{ ...schema, data: all, error: schema.error ?? connectors.error ?? types.error }}>
      {(form) => (
        <Stack gap="sm">
          <ListExtent query={connectors} />
          {kind === 'input' && <InputType schema={schema.data as RJSFSchema} value={value} onChange={(type) => onChange({ type }, true)} />}
          <SchemaForm
            key={`${path} ${String(value.type)}`}
            id={kind === 'index' ? 'config' : fieldIdOf(path)}
            schema={form}
            uiSchema={uiSchema}
            context={context}
            value={value}
            onChange={onChange}
            onSubmit={onSubmit}
            errors={kind === 'index' ? errors : below(errors, path)}
          />
        </Stack>
      )}
    </Loaded>
  )
}

function InputType(props: { schema: RJSFSchema; value: Part['value']; onChange: (type: string) => void }) {
  const { t } = useTranslation()
  const text = useServerTexts()
  return (
    <Select
      label={t('flow.inputType')}
      data={choicesOf(props.schema, 'input').map(({ type, title }) => ({ value: type, label: text(title) }))}
      value={props.value.type as string}
      onChange={(type) => type && props.onChange(type)}
    />
  )
}
