import { Stack } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { Page } from '@/components/page'
import { ApiKeys } from '@/features/access/components/api-keys'
import { Members } from '@/features/access/components/members'
import { includes, useRole } from '@/lib/queries/session'

/** Who may do what in the workspace: people and programs. */
export function AccessPage() {
  const { t } = useTranslation()
  const isAdmin = includes(useRole(), 'admin')
  return (
    <Page purpose={t('access.purpose')}>
      <Stack gap="lg">
        <Members isAdmin={isAdmin} />
        {isAdmin && <ApiKeys />}
      </Stack>
    </Page>
  )
}
