import { Group, SegmentedControl, Text, Tooltip } from '@mantine/core'
import { useTranslation } from 'react-i18next'

import { toastFailed } from '@/components/toasts'
import { useGenerator, useSetGenerator } from '@/features/demo/api/generator'
import { useWorkspace } from '@/lib/queries/session'

const rates = [0, 5, 50]

/** Switches the demo's messages on and off; nothing in another workspace, or in an installation without the demo. */
export function GeneratorSwitch() {
  const { t } = useTranslation()
  const generator = useGenerator()
  const set = useSetGenerator()
  const workspace = useWorkspace()
  if (!generator.data || generator.data.workspace !== workspace?.slug) return null
  const label = (rate: number) => (rate ? t('demo.rate', { rate }) : t('demo.off'))
  return (
    <Tooltip label={t('demo.hint')}>
      <Group gap="xs">
        <Text size="sm" id="generator-label">
          {t('demo.generator')}
        </Text>
        <SegmentedControl
          size="xs"
          aria-labelledby="generator-label"
          value={String(generator.data.rate)}
          data={rates.map((rate) => ({ value: String(rate), label: label(rate) }))}
          onChange={(value) => set.mutate(Number(value), { onError: toastFailed })}
        />
      </Group>
    </Tooltip>
  )
}
