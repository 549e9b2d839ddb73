import { JsonInput } from '@mantine/core'
import type { FieldProps } from '@rjsf/utils'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

/** Any JSON value, typed as JSON. What is no JSON yet is kept as it was typed, with an error. */
export function JsonField({ fieldPathId, schema, formData, required, rawErrors, name, onChange }: FieldProps) {
  const { t } = useTranslation()
  // Where null is what an empty field means, it is shown as one.
  const isEmpty = formData === undefined || (formData === null && schema.default === null)
  const [text, setText] = useState(isEmpty ? '' : JSON.stringify(formData))
  const isBroken = text.trim() !== '' && !parsed(text)
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
      error={isBroken ? t('form.notJson') : rawErrors?.join(' ')}
      onChange={(next) => {
        setText(next)
        const json = parsed(next)
        onChange(next.trim() === '' ? undefined : json ? json.value : next, fieldPathId.path)
      }}
    />
  )
}

/** In an object, since null is a value too. */
function parsed(text: string): { value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) as unknown }
  } catch {
    return undefined
  }
}
