import { Button, Group, Input, PasswordInput, Text } from '@mantine/core'
import type { WidgetProps } from '@rjsf/utils'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { mask } from '@/lib/drafts'

/** A secret: stored ones are never shown, only replaced. */
export function SecretWidget({ id, label, value, required, rawErrors, options, onChange }: WidgetProps) {
  const { t } = useTranslation()
  const [stored] = useState(value === mask)
  if (value === mask) {
    return (
      <div id={id}>
        <Text size="sm" fw={500}>
          {label}
        </Text>
        <Group gap="sm">
          <Text size="sm" c="dimmed">
            {t('connectors.storedSecret')}
          </Text>
          <Button size="compact-xs" variant="default" onClick={() => onChange('')}>
            {t('connectors.replaceSecret')}
          </Button>
        </Group>
        {rawErrors && <Input.Error>{rawErrors.join(' ')}</Input.Error>}
      </div>
    )
  }
  return (
    <PasswordInput
      id={id}
      label={label}
      description={options.description}
      withAsterisk={required}
      autoComplete="new-password"
      value={(value as string | undefined) ?? ''}
      error={rawErrors?.join(' ')}
      onChange={(event) => onChange(event.currentTarget.value || undefined)}
      inputContainer={(input) => (
        <Group gap="sm" align="center">
          <div style={{ flex: 1 }}>{input}</div>
          {stored && (
            <Button size="compact-xs" variant="default" onClick={() => onChange(mask)}>
              {t('connectors.keepSecret')}
            </Button>
          )}
        </Group>
      )}
    />
  )
}
