import { getDefaultRegistry } from '@rjsf/core'
import type { FieldProps } from '@rjsf/utils'

import { hideConstants } from './prepare-schema'

const { ObjectField } = getDefaultRegistry().fields

/** The library's object field, without the constants that only tell variants apart. */
export function SchemaObjectField(props: FieldProps) {
  const resolved = props.registry.schemaUtils.retrieveSchema(props.schema, props.formData)
  return ObjectField && <ObjectField {...props} uiSchema={hideConstants(resolved, props.uiSchema)} />
}
