import { ActionIcon, Group, Stack, Title, Tooltip } from '@mantine/core'
import { IconArrowDown, IconArrowUp, IconTrash } from '@tabler/icons-react'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import type { DryRun } from '@/features/pipelines/api/pipelines'
import { PlaygroundStep } from '@/features/pipelines/components/playground-outcome'
import type { FieldErrors } from '@/lib/api/problem'

import { PartForm } from './part-form'
import type { Part } from './parts'
import { useNames } from './use-names'

interface PanelProps {
  pipeline: string | undefined
  part: Part
  steps: number
  errors: FieldErrors
  outcome: DryRun | undefined
  onChange: (value: Part['value'], isTyped: boolean) => void
  onMove: (from: number, to: number) => void
  onRemove: () => void
  onSubmit: () => void
}

/** One part: its name, what may be done with it, its fields, and what it makes of the message that is tried. */
export function PartPanel({ pipeline, part, steps, errors, outcome, onChange, onMove, onRemove, onSubmit }: PanelProps) {
  const { t } = useTranslation()
  const { title } = useNames()(part)
  const index = Number(part.path.split('.')[1])
  const step = part.kind === 'step' ? outcome?.steps[index] : undefined
  return (
    <Stack gap="sm">
      <Group justify="space-between" wrap="nowrap">
        <Title order={2} size="h5">
          {title}
        </Title>
        <Group gap={2} wrap="nowrap">
          {part.kind === 'step' && (
            <>
              <Tool label={t('flow.up')} disabled={index === 0} onClick={() => onMove(index, index - 1)} icon={<IconArrowUp size={16} />} />
              <Tool label={t('flow.down')} disabled={index === steps - 1} onClick={() => onMove(index, index + 1)} icon={<IconArrowDown size={16} />} />
            </>
          )}
          {part.kind !== 'input' && <Tool label={t('flow.remove', { title })} onClick={onRemove} icon={<IconTrash size={16} />} />}
        </Group>
      </Group>
      <PartForm pipeline={pipeline} part={part} onChange={onChange} onSubmit={onSubmit} errors={errors} />
      {outcome && step && <PlaygroundStep outcome={outcome} index={index} />}
    </Stack>
  )
}

function Tool(props: { label: string; disabled?: boolean; onClick: () => void; icon: ReactNode }) {
  return (
    <Tooltip label={props.label}>
      <ActionIcon variant="subtle" color="gray" aria-label={props.label} disabled={props.disabled} onClick={props.onClick}>
        {props.icon}
      </ActionIcon>
    </Tooltip>
  )
}
