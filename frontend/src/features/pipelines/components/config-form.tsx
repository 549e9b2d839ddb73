import type { RJSFSchema, UiSchema } from '@rjsf/utils'
import type { TFunction } from 'i18next'
import { useMemo, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import { SchemaForm, type FormData } from '@/components/schema-form/schema-form'
import { Loaded } from '@/components/states'
import { useMessageFields, usePipelineSchema } from '@/features/pipelines/api/pipelines'
import { useConnectors, useConnectorTypes } from '@/lib/queries/connectors'

interface Props {
  /** The pipeline whose messages tell which fields there are; none before it is saved. */
  pipeline?: string
  /** Only this part of the configuration. */
  only?: string
  value: FormData
  onChange: (value: FormData) => void
  onSubmit: () => void
  errors: Record<string, string[]>
  children?: ReactNode
}

/** A pipeline's configuration, or a part of it, as a form made of its schema. */
export function ConfigForm({ pipeline, only, ...form }: Props) {
  const { t } = useTranslation()
  const schema = usePipelineSchema()
  const connectors = useConnectors()
  const types = useConnectorTypes()
  const fields = useMessageFields(pipeline)
  const uiSchema = useMemo(() => formLayout(t), [t])
  const part = useMemo(() => schema.data && partOf(schema.data, only), [schema.data, only])
  const context = useMemo(
    () => ({ connectors: connectors.data, types: types.data, messageFields: fields.data }),
    [connectors.data, types.data, fields.data],
  )
  return (
    <Loaded query={{ ...schema, data: part }}>
      {(shown) => (
        <Loaded query={connectors}>
          {() => (
            <Loaded query={types}>
              {() => <SchemaForm id="config" schema={shown} uiSchema={uiSchema} context={context} {...form} />}
            </Loaded>
          )}
        </Loaded>
      )}
    </Loaded>
  )
}

function partOf(schema: RJSFSchema, only: string | undefined): RJSFSchema {
  const part = only && schema.properties?.[only]
  return part ? { ...schema, properties: { [only]: part }, required: [] } : schema
}

/** Names for the elements of lists, which a schema does not give. */
function formLayout(t: TFunction): UiSchema {
  return {
    transforms: { items: { 'ui:title': t('pipelines.step') } },
    examples: { items: { 'ui:title': t('playground.example') } },
    outputs: { items: { 'ui:title': t('pipelines.output') } },
  }
}
