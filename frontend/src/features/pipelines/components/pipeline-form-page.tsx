import { Button, Card, Group, Select, TextInput } from '@mantine/core'
import type { FieldProps, RJSFSchema, UiSchema, WidgetProps } from '@rjsf/utils'
import type { TFunction } from 'i18next'
import { useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, useNavigate, useParams } from 'react-router'

import { Page } from '@/components/page'
import { SchemaForm } from '@/components/schema-form/schema-form'
import { prepareSchema } from '@/components/schema-form/prepare-schema'
import { SchemaObjectField } from '@/components/schema-form/schema-object-field'
import { Loaded } from '@/components/states'
import { toastDone, toastFailed } from '@/components/toasts'
import {
  usePipeline,
  usePipelineSchema,
  useSavePipeline,
  type PipelineDraft,
} from '@/features/pipelines/api/pipelines'
import { api, dataOf } from '@/lib/api/client'
import { Problem } from '@/lib/api/problem'
import type { components } from '@/lib/api/schema'
import { below } from '@/lib/error-paths'
import { useQuery } from '@tanstack/react-query'

type Connector = components['schemas']['Connector']
type ConnectorType = components['schemas']['ConnectorType']

interface Context {
  connectors: Connector[]
  types: ConnectorType[]
}

export function PipelineFormPage() {
  const { id } = useParams()
  const { t } = useTranslation()
  const schema = usePipelineSchema()
  const saved = usePipeline(id)
  const context = useFormContext()
  const title = id ? t('pipelines.editTitle', { name: saved.data?.name ?? '…' }) : t('pipelines.newTitle')
  const form = (draft: PipelineDraft, etag?: string) => (
    <Loaded query={schema}>
      {(found) => (
        <Loaded query={context}>
          {(known) => <PipelineForm id={id} etag={etag} schema={found} context={known} draft={draft} />}
        </Loaded>
      )}
    </Loaded>
  )
  return (
    <Page title={title} purpose={t('pipelines.editPurpose')}>
      {id ? (
        <Loaded query={saved}>
          {(pipeline) => form({ name: pipeline.name, config: { ...pipeline.config } }, pipeline.etag)}
        </Loaded>
      ) : (
        form({ name: '', config: { outputs: [{}] } })
      )}
    </Page>
  )
}

/** What the form needs to know of connectors to offer them and to ask for their options. */
function useFormContext() {
  return useQuery({
    queryKey: ['pipelines', 'form-context'],
    queryFn: async (): Promise<Context> => {
      const [connectors, types] = await Promise.all([
        dataOf(api.GET('/api/v1/connectors/', { params: { query: { page_size: 500 } } })),
        dataOf(api.GET('/api/v1/connector-types/')),
      ])
      return { connectors: connectors.results, types }
    },
  })
}

function formLayout(t: TFunction): UiSchema {
  return {
    input: { verification: { 'ui:widget': 'ConnectorWidget', 'ui:options': { verifies: true } } },
    transforms: { items: { 'ui:title': t('pipelines.step') } },
    outputs: {
      items: {
        'ui:title': t('pipelines.output'),
        'ui:field': 'OutputField',
        connector: { 'ui:widget': 'ConnectorWidget' },
      },
    },
  }
}

function PipelineForm(props: { id?: string; etag?: string; schema: RJSFSchema; context: Context; draft: PipelineDraft }) {
  const { id, schema, context } = props
  const { t } = useTranslation()
  const navigate = useNavigate()
  const [draft, setDraft] = useState(props.draft)
  const [errors, setErrors] = useState<Record<string, string[]>>({})
  // The one that was read when editing began: what was saved meanwhile is not overwritten.
  const [etag] = useState(props.etag)
  const save = useSavePipeline(id, etag)
  const uiSchema = useMemo(() => formLayout(t), [t])

  function submit() {
    save.mutate(draft, {
      onSuccess: (pipeline) => {
        toastDone(t('common.saved'))
        void navigate(`/pipelines/${pipeline.id}`)
      },
      onError: (error) => {
        setErrors(error instanceof Problem ? error.errors : {})
        if (!(error instanceof Problem) || !Object.keys(error.errors).length) toastFailed(error)
      },
    })
  }

  return (
    <Card withBorder maw={860}>
      <TextInput
        label={t('common.name')}
        required
        mb="md"
        value={draft.name}
        error={errors.name?.join(' ')}
        onChange={(event) => setDraft({ ...draft, name: event.currentTarget.value })}
      />
      <SchemaForm
        id="config"
        schema={schema}
        uiSchema={uiSchema}
        fields={{ OutputField }}
        widgets={{ ConnectorWidget }}
        context={context}
        value={draft.config}
        onChange={(config) => setDraft({ ...draft, config })}
        onSubmit={submit}
        errors={below(errors, 'config')}
      >
        <Group justify="flex-end" mt="lg">
          <Button variant="default" component={Link} to={id ? `/pipelines/${id}` : '/pipelines'}>
            {t('common.cancel')}
          </Button>
          <Button type="submit" loading={save.isPending}>
            {t('common.save')}
          </Button>
        </Group>
      </SchemaForm>
    </Card>
  )
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
  const uiSchema = { ...props.uiSchema, 'ui:field': undefined }
  return <SchemaObjectField {...props} schema={{ ...resolved, properties }} uiSchema={uiSchema} />
}

function ConnectorWidget({ id, label, value, required, rawErrors, options, registry, onChange }: WidgetProps) {
  const { t } = useTranslation()
  const { connectors, types } = registry.formContext as unknown as Context
  const fits = (name: string) => {
    const type = types.find((candidate) => candidate.type === name)
    return options.verifies ? type?.verifies : type?.destination_schema
  }
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
        .filter((connector) => fits(connector.type))
        .map((connector) => ({ value: connector.id, label: `${connector.name} (${connector.type})` }))}
      value={(value as string | undefined) ?? null}
      onChange={(next) => onChange(next ?? undefined)}
    />
  )
}
