import { Select } from '@mantine/core'
import type { FieldProps, RJSFSchema, UiSchema, WidgetProps } from '@rjsf/utils'
import { useQuery } from '@tanstack/react-query'
import type { TFunction } from 'i18next'
import { useMemo, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import type { MessageField } from '@/components/schema-form/field-path-widget'
import { prepareSchema } from '@/components/schema-form/prepare-schema'
import { SchemaForm, type FormData } from '@/components/schema-form/schema-form'
import { SchemaObjectField } from '@/components/schema-form/schema-object-field'
import { Loaded } from '@/components/states'
import { useMessageFields, usePipelineSchema } from '@/features/pipelines/api/pipelines'
import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'

type Connector = components['schemas']['Connector']
type ConnectorType = components['schemas']['ConnectorType']

interface Context {
  connectors: Connector[]
  types: ConnectorType[]
  messageFields: MessageField[]
}

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
  const known = useConnectors()
  const fields = useMessageFields(pipeline)
  const uiSchema = useMemo(() => formLayout(t), [t])
  return (
    <Loaded query={schema}>
      {(found) => (
        <Loaded query={known}>
          {(context) => (
            <SchemaForm
              id="config"
              schema={partOf(found, only)}
              uiSchema={uiSchema}
              fields={customFields}
              widgets={customWidgets}
              context={{ ...context, messageFields: fields.data ?? [] } satisfies Context}
              {...form}
            />
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

/** What the form needs to know of connectors to offer them and to ask for their options. */
function useConnectors() {
  return useQuery({
    queryKey: ['pipelines', 'form-context'],
    queryFn: async () => {
      const [connectors, types] = await Promise.all([
        dataOf(api.GET('/api/v1/connectors/', { params: { query: { page_size: 500 } } })),
        dataOf(api.GET('/api/v1/connector-types/')),
      ])
      return { connectors: connectors.results, types }
    },
  })
}

function formLayout(t: TFunction): UiSchema {
  const connector = (purpose: Purpose) => ({ 'ui:widget': 'ConnectorWidget', 'ui:options': { purpose } })
  return {
    input: { verification: connector('verify') },
    transforms: { items: { 'ui:title': t('pipelines.step'), connector: connector('call') } },
    examples: { items: { 'ui:title': t('playground.example') } },
    outputs: {
      items: { 'ui:title': t('pipelines.output'), 'ui:field': 'OutputField', connector: connector('deliver') },
    },
  }
}

/** An output whose options are those of the chosen connector's type. */
function OutputField(props: FieldProps) {
  const { connectors, types } = props.registry.formContext as unknown as Context
  const chosen = (props.formData as { connector?: string } | undefined)?.connector
  const type = connectors.find((connector) => connector.id === chosen)?.type
  const options = types.find((candidate) => candidate.type === type)?.destination_schema
  const resolved = props.registry.schemaUtils.retrieveSchema(props.schema, props.formData)
  const properties = { ...resolved.properties }
  if (options) properties.options = prepareSchema(options)
  else delete properties.options
  const schema = { ...resolved, properties }
  // The form filled in what it knew of; the options' own defaults are known here only.
  const formData: unknown = props.registry.schemaUtils.getDefaultFormState(schema, props.formData)
  const uiSchema = { ...props.uiSchema, 'ui:field': undefined }
  return <SchemaObjectField {...props} schema={schema} formData={formData} uiSchema={uiSchema} />
}

type Purpose = 'verify' | 'call' | 'deliver'

const fits: Record<Purpose, (type: ConnectorType) => boolean> = {
  verify: (type) => type.verifies,
  call: (type) => type.type === 'http',
  deliver: (type) => Boolean(type.destination_schema),
}

function ConnectorWidget({ id, label, value, required, rawErrors, options, registry, onChange }: WidgetProps) {
  const { t } = useTranslation()
  const { connectors, types } = registry.formContext as unknown as Context
  const usable = new Set(types.filter(fits[options.purpose as Purpose]).map((type) => type.type))
  return (
    <Select
      id={id}
      label={label}
      description={options.description}
      placeholder={t('connectors.choose')}
      withAsterisk={required}
      searchable
      clearable={!required}
      error={rawErrors?.join(' ')}
      data={connectors
        .filter((connector) => usable.has(connector.type))
        .map((connector) => ({ value: connector.id, label: `${connector.name} (${connector.type})` }))}
      value={(value as string | undefined) ?? null}
      onChange={(next) => onChange(next ?? undefined)}
    />
  )
}

const customFields = { OutputField }
const customWidgets = { ConnectorWidget }
