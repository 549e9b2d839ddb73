import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { FilterBar } from '@/components/filter-bar'
import { LoadMore } from '@/components/load-more'
import { Page } from '@/components/page'
import { Empty, Loaded } from '@/components/states'
import { useExports, useWaiting } from '@/features/exports/api/exports'
import { ExportDrawer } from '@/features/exports/components/export-drawer'
import { states } from '@/features/exports/components/export-state'
import { ExportTable } from '@/features/exports/components/export-table'
import { WaitingTable } from '@/features/exports/components/waiting-table'
import { useFilter } from '@/lib/use-filter'

export function ExportsPage() {
  const { t } = useTranslation()
  const { filter, set } = useFilter({})
  const files = useExports(filter)
  const waiting = useWaiting()
  const [shown, setShown] = useState<string | null>(null)
  const isOfPipeline = ({ pipeline }: { pipeline: string }) => !filter.pipeline || pipeline === filter.pipeline
  return (
    <Page purpose={t('exports.purpose')}>
      <FilterBar
        filter={filter}
        set={set}
        choices={[
          {
            name: 'state',
            label: t('common.status'),
            data: states.map((value) => ({ value, label: t(`exports.state.${value}`) })),
          },
        ]}
        text={{ name: 'search', label: t('exports.search') }}
      />
      <Loaded query={waiting}>
        {(groups) => (groups.some(isOfPipeline) ? <WaitingTable groups={groups.filter(isOfPipeline)} /> : null)}
      </Loaded>
      <Loaded query={files}>
        {({ pages }) => {
          const all = pages.flatMap((page) => page.results)
          return all.length ? (
            <>
              <ExportTable files={all} onShow={setShown} />
              <LoadMore query={files} />
            </>
          ) : (
            <Empty title={t('exports.empty')} hint={t('exports.emptyHint')} />
          )
        }}
      </Loaded>
      <ExportDrawer id={shown} onClose={() => setShown(null)} />
    </Page>
  )
}
