import { Anchor, Box, Breadcrumbs, Group, Stack, Text, Title } from '@mantine/core'
import { useDocumentTitle } from '@mantine/hooks'
import { createContext, useContext, useEffect, useRef, type ReactNode } from 'react'
import { Link, NavigationType, useLocation, useNavigationType } from 'react-router'

import { Loaded, type Query } from './states'

interface Place {
  title: string
  /** The pages above this one, outermost first. */
  parents: { title: string; to: string }[]
}

const PlaceContext = createContext<Place>({ title: '', parents: [] })

/** Where a page stands in the console; the router says it. */
export const PagePlace = PlaceContext.Provider

interface Props {
  /** Where the page's own title in the route table is too general, such as the name of what it shows. */
  title?: string
  /** Likewise for the page above it. */
  parentTitle?: string
  purpose?: ReactNode
  /** The page's primary action, at the right. */
  action?: ReactNode
  children: ReactNode
}

/** The frame of every page: breadcrumbs, title, one line of what it is for, action, content. */
export function Page({ title: ownTitle, parentTitle, purpose, action, children }: Props) {
  const place = useContext(PlaceContext)
  const title = ownTitle ?? place.title
  useDocumentTitle(`${title} · Headrace`)
  const heading = useArrival()
  return (
    <Box maw={1400} mx="auto">
      {place.parents.length > 0 && (
        <Breadcrumbs mb="xs">
          {place.parents.map((parent, index) => (
            <Anchor key={parent.to} component={Link} to={parent.to} size="sm">
              {(index === place.parents.length - 1 && parentTitle) || parent.title}
            </Anchor>
          ))}
        </Breadcrumbs>
      )}
      <Group justify="space-between" align="flex-start" mb="lg">
        <Stack gap={2}>
          <Title order={1} size="h2" ref={heading} tabIndex={-1}>
            {title}
          </Title>
          {purpose && (
            <Text c="dimmed" component="div">
              {purpose}
            </Text>
          )}
        </Stack>
        {action}
      </Group>
      {children}
    </Box>
  )
}

interface LoadedProps<T> {
  query: Query<T>
  children: (data: T) => ReactNode
}

/** A page of what has to be loaded first: it has its frame meanwhile, and when that fails. */
export function LoadedPage<T>({ query, children }: LoadedProps<T>) {
  if (query.data !== undefined) return children(query.data)
  return (
    <Page>
      <Loaded query={query}>{() => null}</Loaded>
    </Page>
  )
}

/** The navigation that the last page appeared after. */
let lastArrival: string | undefined

/**
 * After navigation the page begins at its top, and the focus is on its heading: a screen reader says where one is.
 * A page appears once more when its data have come. Whoever has gone on meanwhile, such as into the palette, keeps the focus.
 */
function useArrival() {
  const heading = useRef<HTMLHeadingElement>(null)
  const { key } = useLocation()
  const wentBack = useNavigationType() === NavigationType.Pop
  useEffect(() => {
    const wentOn = key === lastArrival && document.activeElement !== document.body
    lastArrival = key
    if (key === 'default' || wentOn) return
    if (!wentBack) window.scrollTo(0, 0)
    heading.current?.focus({ preventScroll: true })
    // Only when the page appears, not when its filters or tabs change the address.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [])
  return heading
}
