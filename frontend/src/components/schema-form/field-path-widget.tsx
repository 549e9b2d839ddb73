import { Autocomplete, Group, Text } from '@mantine/core'
import type { WidgetProps } from '@rjsf/utils'

import { contextOf } from './context'

/** A path, with the fields that messages have offered. */
export function FieldPathWidget({ id, label, value, required, rawErrors, options, registry, onChange }: WidgetProps) {
  const { messageFields = [] } = contextOf(registry)
  const byPath = new Map(messageFields.map((field) => [field.path, field]))
  return (
    <Autocomplete
      id={id}
      label={label}
      description={options.description}
      placeholder={options.placeholder}
      withAsterisk={required}
      limit={30}
      error={rawErrors?.join(' ')}
      data={[...byPath.keys()]}
      value={(value as string | undefined) ?? ''}
      onChange={(next) => onChange(next || undefined)}
      renderOption={({ option }) => (
        <Group gap="sm" wrap="nowrap" justify="space-between" w="100%">
          <Text size="sm">{option.value}</Text>
          <Text size="xs" c="dimmed" truncate maw={180}>
            {byPath.get(option.value)?.example}
          </Text>
        </Group>
      )}
    />
  )
}
