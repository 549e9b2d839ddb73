import { createTheme, type CSSVariablesResolver, type MantineColorsTuple } from '@mantine/core'

/** The accent: deep water. White text on shade 8 has a contrast of 5.8 to 1. */
const river: MantineColorsTuple = [
  '#e9f7fb',
  '#d0ebf4',
  '#a3d8e9',
  '#70c3de',
  '#45b1d3',
  '#2597bc',
  '#1686aa',
  '#117a9c',
  '#0c6e8c',
  '#08465a',
]

/** Slate in place of the library's neutral greys. */
const dark: MantineColorsTuple = [
  '#d3dae1',
  '#bcc6cf',
  '#a1adb9',
  '#7d8996',
  '#4a5561',
  '#39444f',
  '#232b33',
  '#181e25',
  '#12171d',
  '#0c1014',
]

export const theme = createTheme({
  colors: { river, dark },
  primaryColor: 'river',
  primaryShade: 8,
  black: '#1b232b',
  defaultRadius: 'md',
  fontFamily: 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif',
  headings: {
    fontWeight: '600',
    sizes: {
      h1: { fontSize: '1.75rem', lineHeight: '1.25' },
      h2: { fontSize: '1.5rem', lineHeight: '1.3' },
      h3: { fontSize: '1.25rem', lineHeight: '1.35' },
      h4: { fontSize: '1.125rem', lineHeight: '1.4' },
      h5: { fontSize: '1rem', lineHeight: '1.45' },
      h6: { fontSize: '0.875rem', lineHeight: '1.5' },
    },
  },
  cursorType: 'pointer',
  respectReducedMotion: true,
  components: {
    // The smallest buttons are still large enough to be hit.
    Button: { vars: (_: unknown, { size }: { size?: string }) => ({ root: size === 'compact-xs' ? { '--button-height': '26px', '--button-padding-x': '10px' } : {} }) },
    // Choosing what is chosen already must not undo the choice; where nothing is a choice, `clearable` says so.
    Select: { defaultProps: { allowDeselect: false } },
    // A placeholder for content that is loading: announced as busy to assistive technology.
    Skeleton: { defaultProps: { 'aria-busy': true } },
  },
})

/** Text colours of states on white, on the page and on their own light backgrounds: all 4.5 to 1 or more. */
const onLight = { red: '#a61b1b', orange: '#8f3d00', yellow: '#7a4d00', green: '#1b6b30', blue: '#0b5394' }

/** Backgrounds and texts of states in the dark theme: muted, so that a warning does not outshine what it is about. */
const onDark = {
  red: ['#431f22', '#ffa8a8'],
  orange: ['#43301c', '#ffc078'],
  yellow: ['#3d3216', '#ffe066'],
  green: ['#1b3a25', '#8ce99a'],
  blue: ['#183652', '#8cc8ff'],
  gray: ['#323c46', '#d3dae1'],
  river: ['#123a49', '#a3d8e9'],
} satisfies Record<string, [string, string]>

/** What the library leaves below WCAG AA. `theme.test.ts` measures it. */
export const cssVariables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    '--mantine-color-body': '#ffffff',
    '--mantine-color-dimmed': '#56616d',
    '--mantine-color-placeholder': '#66717d',
    '--mantine-color-error': onLight.red,
    '--page-background': '#f5f8f9',
    '--card-background': 'var(--mantine-color-white)',
    '--chart-in': river[8],
    '--chart-delivered': onLight.green,
    '--chart-failed': onLight.red,
    '--chart-waiting': onLight.yellow,
    ...Object.fromEntries(
      Object.entries(onLight).flatMap(([name, value]) => [
        [`--mantine-color-${name}-text`, value],
        [`--mantine-color-${name}-light-color`, value],
      ]),
    ),
  },
  dark: {
    '--mantine-color-dimmed': '#a1adb9',
    '--mantine-color-placeholder': '#95a1ad',
    '--mantine-color-error': '#ff8f8f',
    '--page-background': '#12171d',
    '--card-background': 'var(--mantine-color-dark-6)',
    '--chart-in': river[3],
    '--chart-delivered': onDark.green[1],
    '--chart-failed': onDark.red[1],
    '--chart-waiting': onDark.yellow[1],
    ...Object.fromEntries(
      Object.entries(onDark).flatMap(([name, [background, text]]) => [
        [`--mantine-color-${name}-light`, background],
        [`--mantine-color-${name}-light-hover`, background],
        [`--mantine-color-${name}-light-color`, text],
      ]),
    ),
  },
})
