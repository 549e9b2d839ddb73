import { ScrollArea, type ScrollAreaAutosizeProps } from '@mantine/core'

interface Props extends ScrollAreaAutosizeProps {
  /** What is in it, for those who reach it by the keyboard and hear where they are. */
  label: string
}

/** Something long in a window of its own, which scrolls with the keyboard, too. */
export function Scrolled({ label, ...props }: Props) {
  return <ScrollArea.Autosize {...props} viewportProps={{ tabIndex: 0, role: 'region', 'aria-label': label }} />
}
