import { Button, Group, Paper, Text } from '@mantine/core'
import { lazy, Suspense, useState } from 'react'
import { useTranslation } from 'react-i18next'

import type { Action } from '@/features/pipelines/api/pipelines'
import type { Pipeline } from '@/lib/queries/pipelines'

const BulkDialog = lazy(async () => ({ default: (await import('@/features/pipelines/components/bulk-dialog')).BulkDialog }))

interface Props {
  /** All that are listed. */
  pipelines: Pipeline[]
  chosen: Set<string>
  onChange: (chosen: Set<string>) => void
}

/** What may be done with the chosen rows; it stays in sight while the list is scrolled. */
export function BulkBar({ pipelines, chosen, onChange }: Props) {
  const { t } = useTranslation()
  const [asked, setAsked] = useState<{ action: Action; pipelines: Pipeline[] } | null>(null)
  const rows = pipelines.filter(({ id }) => chosen.has(id))
  const choices: [Action, Pipeline[]][] = [
    ['pause', rows.filter(({ paused }) => !paused)],
    ['resume', rows.filter(({ paused }) => paused)],
  ]
  const close = () => setAsked(null)
  return (
    <>
      {rows.length > 0 && (
        <Paper withBorder shadow="sm" p="xs" mt="sm" pos="sticky" bottom={8} style={{ zIndex: 2 }} role="group" aria-label={t('pipelines.chosenOnes')}>
          <Group gap="xs">
            <Text size="sm" role="status">
              {t('pipelines.chosen', { count: rows.length })}
            </Text>
            {choices.map(([action, ones]) => (
              <Button key={action} size="xs" variant="default" disabled={!ones.length} onClick={() => setAsked({ action, pipelines: ones })}>
                {t(`pipelines.${action}Many`, { count: ones.length })}
              </Button>
            ))}
            {rows.length < pipelines.length && (
              <Button size="xs" variant="subtle" onClick={() => onChange(new Set(pipelines.map(({ id }) => id)))}>
                {t('pipelines.chooseAll', { count: pipelines.length })}
              </Button>
            )}
            <Button size="xs" variant="subtle" onClick={() => onChange(new Set())}>
              {t('pipelines.chooseNone')}
            </Button>
          </Group>
        </Paper>
      )}
      <Suspense>
        {asked && (
          <BulkDialog
            {...asked}
            onClose={close}
            onDone={() => {
              onChange(new Set())
              close()
            }}
          />
        )}
      </Suspense>
    </>
  )
}
