import { createTheme, Select } from '@mantine/core'

export const theme = createTheme({
  primaryColor: 'indigo',
  defaultRadius: 'sm',
  fontFamily: 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif',
  headings: { fontWeight: '600' },
  cursorType: 'pointer',
  components: {
    // Choosing what is chosen already must not undo the choice; where nothing is a choice, `clearable` says so.
    Select: Select.extend({ defaultProps: { allowDeselect: false } }),
  },
})
