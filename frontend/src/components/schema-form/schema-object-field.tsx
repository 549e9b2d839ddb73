import { getDefaultRegistry } from '@rjsf/core'
import type { FieldProps, RJSFSchema } from '@rjsf/utils'
import { useCallback, useEffect, useRef } from 'react'

import { connectorUseIn, hasFields, keptOptions, optionsDefinition, withForms, withMode, withOptions, type ConnectorUse } from './connector-use'
import { contextOf } from './context'
import { OwnErrors } from './own-errors'
import { isVariant, uiSchemaOf } from './prepare-schema'

const { ObjectField } = getDefaultRegistry().fields

/** The library's object field, with what a schema alone does not say. */
export function SchemaObjectField(props: FieldProps) {
  const resolved = props.registry.schemaUtils.retrieveSchema(props.schema, props.formData)
  const use = contextOf(props.registry).types && connectorUseIn(resolved)
  return use ? <ConnectorUseField {...props} schema={resolved} use={use} /> : <PlainObjectField {...props} resolved={resolved} />
}

function PlainObjectField({ resolved, ...props }: FieldProps & { resolved: RJSFSchema }) {
  const uiSchema = uiSchemaOf(resolved, props.uiSchema)
  // The selection above a chosen variant shows the field's description; the variant shows its own.
  if (isVariant(resolved)) delete uiSchema['ui:description']
  return (
    ObjectField && (
      <>
        <ObjectField {...props} uiSchema={uiSchema} />
        {!isVariant(resolved) && <OwnErrors errors={props.rawErrors} />}
      </>
    )
  )
}

/** An object that uses a connector: its options are those of the capability by which the chosen one is used. */
function ConnectorUseField({ use, ...props }: FieldProps & { use: ConnectorUse }) {
  const { fieldPathId, registry } = props
  const context = contextOf(registry)
  const value = (props.formData ?? {}) as Record<string, unknown>
  const definition = optionsDefinition(context, use, value)
  const schemaOf = (name: string | undefined) => (name ? (registry.rootSchema.$defs?.[name] as RJSFSchema | undefined) : undefined)
  const own = withForms(withMode(props.schema, use, context, value), use, context, value)
  const schema = withOptions(own, use, hasFields(schemaOf(definition)) ? definition : undefined)
  // The form filled in what it knew of; the options' own defaults are known here only.
  const formData: unknown = registry.schemaUtils.getDefaultFormState(schema, props.formData)

  const change: FieldProps['onChange'] = (next, path, ...rest) => {
    const [name, ...deeper] = path.slice(fieldPathId.path.length)
    if (use.options && name !== undefined && !deeper.length) {
      const changed = { ...value, [name]: next as unknown }
      const nextDefinition = optionsDefinition(context, use, changed)
      if (nextDefinition !== definition) {
        const options = keptOptions(value[use.options], schemaOf(nextDefinition))
        props.onChange({ ...changed, [use.options]: options }, fieldPathId.path, ...rest)
        return
      }
    }
    props.onChange(next, path, ...rest)
  }
  return <PlainObjectField {...props} schema={schema} resolved={schema} formData={formData} onChange={useLatest(change)} />
}

/**
 * The handler of the last rendering, as a function that stays the same. The library renders no field again whose value
 * stayed, and such a field calls the handler that it got first: what was typed elsewhere since would be lost.
 */
function useLatest(handler: FieldProps['onChange']): FieldProps['onChange'] {
  const latest = useRef(handler)
  useEffect(() => {
    latest.current = handler
  })
  return useCallback((...given) => latest.current(...given), [])
}
