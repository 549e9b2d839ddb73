import { Checkbox } from '@mantine/core'
import type { WidgetProps } from '@rjsf/utils'

/** A box to tick, with its help under its label as every field has it. */
export function CheckboxWidget({ id, label, value, required, rawErrors, options, schema, onChange }: WidgetProps) {
  return (
    <Checkbox
      id={id}
      label={label}
      description={options.description ?? schema.description}
      required={required}
      error={rawErrors?.join(' ')}
      checked={value === true}
      onChange={(event) => onChange(event.currentTarget.checked)}
    />
  )
}
