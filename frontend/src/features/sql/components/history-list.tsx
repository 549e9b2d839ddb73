import { Button, Code, Text } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { DataTable } from '@/components/data-table'
import { LoadMore } from '@/components/load-more'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { useHistory } from '@/features/sql/api/sql'
import { serverText } from '@/lib/texts'

/** What was executed in the workspace, with masks in place of secrets. */
export function HistoryList({ onChoose }: { onChoose: (text: string) => void }) {
  const { t } = useTranslation()
  const history = useHistory()
  return (
    <Loaded query={history}>
      {({ pages }) => {
        const statements = pages.flatMap((page) => page.results)
        return statements.length ? (
          <>
            <DataTable
              label={t('sql.tabs.history')}
              rows={statements}
              keyOf={({ id }) => id}
              columns={[
                {
                  name: 'text',
                  title: t('sql.statement'),
                  isLead: true,
                  isWide: true,
                  cell: ({ text, error }) => (
                    <>
                      <Code style={{ overflowWrap: 'anywhere' }}>{text}</Code>
                      {error && (
                        <Text size="xs" c="red">
                          {serverText(error)}
                        </Text>
                      )}
                    </>
                  ),
                },
                { name: 'actor', title: t('sql.actor'), cell: ({ actor }) => actor },
                { name: 'at', title: t('sql.at'), cell: ({ at }) => <Time at={at} />, isStill: true },
              ]}
              actions={({ text }) => (
                <Button size="xs" variant="default" onClick={() => onChoose(text)}>
                  {t('sql.reuse')}
                </Button>
              )}
            />
            <LoadMore query={history} />
          </>
        ) : (
          <Empty title={t('sql.noHistory')} />
        )
      }}
    </Loaded>
  )
}
