import type { RJSFSchema } from '@rjsf/utils'
import { useCallback } from 'react'

import { connectorUseIn, optionsDefinition, withOptions, withOptionSchemas } from '@/components/schema-form/connector-use'
import type { FormContext } from '@/components/schema-form/context'
import { usePipelineSchema, type Config } from '@/features/pipelines/api/pipelines'
import { stepNumber } from '@/features/pipelines/events'
import { titleAt } from '@/lib/json-schema'
import { useConnectors, useConnectorTypes } from '@/lib/queries/connectors'
import { useServerTexts } from '@/lib/texts'

import { partSchema } from './part-schema'
import { partPathOf, partsOf, type Part } from './parts'
import { useNames } from './use-names'

/** What a field of a configuration is called, as its form calls it: "2. Rename › Path". What belongs to no part, by its path. */
export function useFieldTitles(): (config: Config, field: string) => string {
  const text = useServerTexts()
  const schema = usePipelineSchema().data
  const connectors = useConnectors().data?.rows
  const types = useConnectorTypes().data
  const namesOf = useNames()
  return useCallback(
    (config, field) => {
      const part = partsOf(config).find(({ path }) => path === partPathOf(field))
      if (!part || !schema) return field
      const form = formSchema(schema, part, { connectors, types })
      if (part.kind === 'index') return titleAt(form, field, text)
      const name = namesOf(part).title
      const rest = field.slice(part.path.length + 1)
      return [part.kind === 'step' ? `${stepNumber(part)}. ${name}` : name, rest && titleAt(form, rest, text)].filter(Boolean).join(' › ')
    },
    [text, schema, connectors, types, namesOf],
  )
}

/** The schema of a part's form, with the options of the connector that is chosen there. */
function formSchema(schema: RJSFSchema, { path, value }: Part, context: FormContext): RJSFSchema {
  const shape = partSchema(schema, path, value)
  const use = connectorUseIn(shape)
  return use ? withOptions(withOptionSchemas(shape, context.types), use, optionsDefinition(context, use, value)) : shape
}
