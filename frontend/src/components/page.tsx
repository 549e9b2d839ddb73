import { Box, Group, Stack, Text, Title } from '@mantine/core'
import { useDocumentTitle } from '@mantine/hooks'
import type { ReactNode } from 'react'

interface Props {
  title: string
  purpose?: ReactNode
  /** The page's primary action, at the right. */
  action?: ReactNode
  children: ReactNode
}

/** The frame of every page: title, one line of what it is for, action, content. */
export function Page({ title, purpose, action, children }: Props) {
  useDocumentTitle(`${title} · Headrace`)
  return (
    <Box maw={1400} mx="auto">
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
