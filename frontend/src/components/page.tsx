import { Anchor, Box, Breadcrumbs, Group, Stack, Text, Title } from '@mantine/core'
import { useDocumentTitle } from '@mantine/hooks'
import { createContext, useContext, type ReactNode } from 'react'
import { Link } from 'react-router'

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
  purpose?: ReactNode
  /** The page's primary action, at the right. */
  action?: ReactNode
  children: ReactNode
}

/** The frame of every page: breadcrumbs, title, one line of what it is for, action, content. */
export function Page({ title: ownTitle, purpose, action, children }: Props) {
  const place = useContext(PlaceContext)
  const title = ownTitle ?? place.title
  useDocumentTitle(`${title} · Headrace`)
  return (
    <Box maw={1400} mx="auto">
      {place.parents.length > 0 && (
        <Breadcrumbs mb="xs">
          {place.parents.map((parent) => (
            <Anchor key={parent.to} component={Link} to={parent.to} size="sm">
              {parent.title}
            </Anchor>
          ))}
        </Breadcrumbs>
      )}
      <Group justify="space-between" align="flex-start" mb="lg">
        <Stack gap={2}>
          <Title order={1} size="h2">{title}</Title>
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
