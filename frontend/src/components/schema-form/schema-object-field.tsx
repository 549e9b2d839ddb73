import { getDefaultRegistry } from '@rjsf/core'
import type { FieldProps } from '@rjsf/utils'

import { isVariant, uiSchemaOf } from './prepare-schema'

const { ObjectField } = getDefaultRegistry().fields

/** The library's object field, told what a schema alone does not say. */
export function SchemaObjectField(props: FieldProps) {
  const resolved = props.registry.schemaUtils.retrieveSchema(props.schema, props.formData)
  const uiSchema = uiSchemaOf(resolved, props.uiSchema)
  // The selection above a chosen variant shows the field's description; the variant shows its own.
  if (isVariant(resolved)) delete uiSchema['ui:description']
  return ObjectField && <ObjectField {...props} uiSchema={uiSchema} />
}
