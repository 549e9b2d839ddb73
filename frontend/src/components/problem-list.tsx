import { Alert, Anchor, List } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import type { FieldErrors } from '@/lib/api/problem'

interface Props {
  errors: FieldErrors
  /** Shows a field and focuses it. */
  onJump: (field: string) => void
  /** What a field is called; by its path otherwise. */
  nameOf?: (field: string) => string
  mb?: string
}

/** Everything of a form that has to be corrected, each with a jump to its place. */
export function ProblemList({ errors, onJump, nameOf = (field) => field, mb }: Props) {
  const { t } = useTranslation()
  const fields = Object.entries(errors)
  if (!fields.length) return null
  return (
    <Alert color="red" icon={<IconAlertTriangle />} title={t('common.problems')} role="alert" mb={mb}>
      <List size="sm">
        {fields.map(([field, sentences]) => (
          <List.Item key={field}>
            <Anchor component="button" type="button" size="sm" onClick={() => onJump(field)}>
              {nameOf(field) || t('common.whole')}
            </Anchor>
            {': '}
            {sentences.join(' ')}
          </List.Item>
        ))}
      </List>
    </Alert>
  )
}
