import { Alert, Anchor, List } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'

import type { FieldErrors } from '@/lib/api/problem'

/** Everything that has to be corrected, each with a jump to its place. */
export function ProblemList({ errors, onJump }: { errors: FieldErrors; onJump: (field: string) => void }) {
  const { t } = useTranslation()
  const fields = Object.entries(errors)
  if (!fields.length) return null
  return (
    <Alert color="red" icon={<IconAlertTriangle />} title={t('common.problems')} role="alert">
      <List size="sm">
        {fields.map(([field, sentences]) => (
          <List.Item key={field}>
            <Anchor component="button" type="button" size="sm" onClick={() => onJump(field)}>
              {field || t('flow.whole')}
            </Anchor>
            {': '}
            {sentences.join(' ')}
          </List.Item>
        ))}
      </List>
    </Alert>
  )
}
