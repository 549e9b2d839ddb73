import { useTranslation } from 'react-i18next'

import { LoadMore } from '@/components/load-more'
import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { useAttempts } from '@/features/deliveries/api/deliveries'
import { AttemptTable } from '@/features/deliveries/components/attempt-table'
import { FilterBar } from '@/components/filter-bar'
import { useFilter } from '@/lib/use-filter'

export function AttemptsPage() {
  const { t } = useTranslation()
  const { filter, set } = useFilter()
  const attempts = useAttempts(filter)
  return (
    <Page purpose={t('attempts.purpose')}>
      <FilterBar
        filter={filter}
        set={set}
        choices={[
          {
            name: 'failed',
            label: t('attempts.outcome'),
            data: [
              { value: 'true', label: t('attempts.failed') },
              { value: 'false', label: t('attempts.delivered') },
            ],
          },
        ]}
        text={{ name: 'message_id', label: t('deliveries.messageId') }}
      />
      <Loaded query={attempts}>
        {({ pages }) => {
          const rows = pages.flatMap((page) => page.results)
          return rows.length ? (
            <>
              <AttemptTable rows={rows} />
              <LoadMore query={attempts} />
            </>
          ) : (
            <Empty title={t('attempts.empty')} hint={t('attempts.emptyHint')} />
          )
        }}
      </Loaded>
    </Page>
  )
}
