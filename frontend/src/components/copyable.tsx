import { Button, Code, CopyButton, Group } from '@mantine/core'
import { useTranslation } from 'react-i18next'

/** Text to be taken elsewhere; what is shown may have a word in front. */
export function Copyable({ value, prefix = '' }: { value: string; prefix?: string }) {
  const { t } = useTranslation()
  return (
    <Group gap="xs">
      <Code style={{ overflowWrap: 'anywhere' }}>
        {prefix}
        {value}
      </Code>
      <CopyButton value={value}>
        {({ copied, copy }) => (
          <Button size="compact-xs" variant="default" onClick={copy}>
            {copied ? t('common.copied') : t('common.copy')}
          </Button>
        )}
      </CopyButton>
    </Group>
  )
}
