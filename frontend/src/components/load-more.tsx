import { Button, Group } from '@mantine/core'
import { useEffect, useRef } from 'react'
import { useTranslation } from 'react-i18next'

interface Pages {
  hasNextPage: boolean
  isFetchingNextPage: boolean
  isFetchNextPageError: boolean
  fetchNextPage: () => unknown
}

/** How far below the window the end of a list may be when its next page is asked for. */
const ahead = '800px'

interface Props {
  query: Pages
  /** Whether something stands below the list, which would be pushed away by pages that come by themselves. */
  isByHand?: boolean
}

/** Below a list that has further pages: loads the next one when it comes near, or is asked for. */
export function LoadMore({ query: { hasNextPage, isFetchingNextPage, isFetchNextPageError, fetchNextPage }, isByHand = false }: Props) {
  const { t } = useTranslation()
  const end = useRef<HTMLDivElement>(null)
  // After a failure it is asked for by hand: a server that is away is not asked all the time.
  const isReady = !isByHand && hasNextPage && !isFetchingNextPage && !isFetchNextPageError
  useEffect(() => {
    if (!isReady || !end.current) return
    const observer = new IntersectionObserver((entries) => entries.some(({ isIntersecting }) => isIntersecting) && void fetchNextPage(), {
      rootMargin: ahead,
    })
    observer.observe(end.current)
    return () => observer.disconnect()
  }, [isReady, fetchNextPage])
  if (!hasNextPage) return null
  return (
    <Group justify="center" mt="md" ref={end}>
      <Button variant="default" loading={isFetchingNextPage} onClick={() => void fetchNextPage()}>
        {t('deliveries.more')}
      </Button>
    </Group>
  )
}
