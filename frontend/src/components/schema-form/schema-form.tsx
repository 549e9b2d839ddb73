import './mantine.css'

import type { IChangeEvent } from '@rjsf/core'
import { withTheme } from '@rjsf/core'
import mantineTemplates from '@rjsf/mantine/lib/templates/index.js'
import CheckboxesWidget from '@rjsf/mantine/lib/widgets/CheckboxesWidget.js'
import SelectWidget from '@rjsf/mantine/lib/widgets/SelectWidget.js'
import TextareaWidget from '@rjsf/mantine/lib/widgets/TextareaWidget.js'
import type { ErrorSchema, RJSFSchema, UiSchema } from '@rjsf/utils'
import { englishStringTranslator, TranslatableString } from '@rjsf/utils'
import { useMemo, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import { useServerTexts } from '@/lib/texts'

import { CheckboxWidget } from './checkbox-widget'
import { withOptionSchemas } from './connector-use'
import { ConnectorWidget } from './connector-widget'
import type { FormContext } from './context'
import { FieldPathWidget } from './field-path-widget'
import { JsonField } from './json-field'
import { prepareSchema } from './prepare-schema'
import { SchemaObjectField } from './schema-object-field'
import { SecretWidget } from './secret-widget'
import { templates } from './templates'
import { translateSchema } from './translate-schema'
import { validator } from './validator'

/** The library's theme without its calendars, which no connector asks for and which weigh as much as all the rest. */
const Form = withTheme({ templates: mantineTemplates, widgets: { CheckboxesWidget, SelectWidget, TextareaWidget } })

const widgets = { CheckboxWidget, PasswordWidget: SecretWidget, FieldPathWidget, ConnectorWidget }
const fields = { ObjectField: SchemaObjectField, JsonField }

export type FormData = Record<string, unknown>

interface Props {
  id: string
  schema: RJSFSchema
  uiSchema?: UiSchema
  context?: FormContext
  value: FormData
  /** `isTyped` is false where the form only filled in what the schema says. */
  onChange: (value: FormData, isTyped: boolean) => void
  onSubmit: () => void
  /** The server's sentences by dotted field path, relative to the form's data. */
  errors: Record<string, string[]>
  children?: ReactNode
}

/**
 * A form made of a JSON Schema. The server is the validator: its errors are shown at their fields. A page lists those
 * of all its fields by a ProblemList.
 */
export function SchemaForm({ id, schema, uiSchema, context, errors, children, ...rest }: Props) {
  const { t } = useTranslation()
  const text = useServerTexts()
  const types = context?.types
  const prepared = useMemo(
    () => translateSchema(prepareSchema(withOptionSchemas(schema, types)), text),
    [schema, types, text],
  )
  // What the form library itself says of named entries; a new one begins empty.
  const own: Partial<Record<TranslatableString, string>> = {
    [TranslatableString.KeyLabel]: t('common.name'),
    [TranslatableString.NewStringDefault]: '',
  }
  return (
    <Form
      id={id}
      idPrefix={id}
      schema={prepared}
      uiSchema={{
        'ui:submitButtonOptions': { norender: true },
        'ui:title': ' ',
        'ui:options': { label: false },
        ...uiSchema,
      }}
      formData={rest.value}
      formContext={context}
      validator={validator}
      widgets={widgets}
      fields={fields}
      templates={templates}
      translateString={(phrase, parameters) => own[phrase] ?? text(englishStringTranslator(phrase, parameters))}
      extraErrors={errorSchema(errors)}
      showErrorList={false}
      noHtml5Validate
      // The library names the field that was typed in, and none for defaults that it fills in.
      onChange={(event: IChangeEvent, field) => rest.onChange(event.formData as FormData, field !== undefined)}
      onSubmit={rest.onSubmit}
    >
      {children ?? <></>}
    </Form>
  )
}

/** Turns `{"outputs.0.name": ["…"]}` into the nested shape that the form library reads. */
export function errorSchema(errors: Record<string, string[]>): ErrorSchema {
  const root: Record<string, unknown> = {}
  for (const [path, sentences] of Object.entries(errors)) {
    let node = root
    for (const step of path.split('.').filter(Boolean)) {
      node[step] ??= {}
      node = node[step] as Record<string, unknown>
    }
    node.__errors = sentences
  }
  return root as ErrorSchema
}
