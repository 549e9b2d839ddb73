import { Button, Group } from '@mantine/core'
import { useTranslation } from 'react-i18next'

interface Pages {
  hasNextPage: boolean
  isFetchingNextPage: boolean
  fetchNextPage: () => unknown
}

/** Below a list that has further pages: loads the next one. */
export function LoadMore({ query }: { query: Pages }) {
  const { t } = useTranslation()
  if (!query.hasNextPage) return null
  return (
    <Group justify="center" mt="md">
      <Button variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
        {t('deliveries.more')}
      </Button>
    </Group>
  )
}
