import { JsonInput } from '@mantine/core'
import type { FieldProps } from '@rjsf/utils'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { InexactNumberError, parseJson, toJson } from '@/lib/json'

/** Any JSON value, typed as JSON. What is no JSON yet is kept as it was typed, with an error. */
export function JsonField({ fieldPathId, schema, formData, required, rawErrors, name, onChange }: FieldProps) {
  const { t } = useTranslation()
  // Where null is what an empty field means, it is shown as one.
  const isEmpty = formData === undefined || (formData === null && schema.default === null)
  const [text, setText] = useState(isEmpty ? '' : toJson(formData))
  const { problem } = parsed(text)
  return (
    <JsonInput
      id={fieldPathId.$id}
      label={schema.title ?? name}
      description={schema.description}
      withAsterisk={required}
      autosize
      minRows={1}
      value={text}
      placeholder='"text", 42, true, ["a", "b"]'
      error={problem ? t(problem) : rawErrors?.join(' ')}
      onChange={(next) => {
        setText(next)
        onChange(parsed(next).value, fieldPathId.path)
      }}
    />
  )
}

/** The value, which is undefined for an empty text; or the text itself and what is wrong with it. */
function parsed(text: string): { value: unknown; problem?: 'form.notJson' | 'form.inexactNumber' } {
  if (text.trim() === '') return { value: undefined }
  try {
    return { value: parseJson(text) }
  } catch (error) {
    return { value: text, problem: error instanceof InexactNumberError ? 'form.inexactNumber' : 'form.notJson' }
  }
}
