import { getDefaultRegistry } from '@rjsf/core'
import type { FieldProps } from '@rjsf/utils'

import { uiSchemaOf } from './prepare-schema'

const { ObjectField } = getDefaultRegistry().fields

/** The library's object field, told what a schema alone does not say. */
export function SchemaObjectField(props: FieldProps) {
  const resolved = props.registry.schemaUtils.retrieveSchema(props.schema, props.formData)
  return ObjectField && <ObjectField {...props} uiSchema={uiSchemaOf(resolved, props.uiSchema)} />
}
