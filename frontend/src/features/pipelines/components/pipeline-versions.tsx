import { Anchor, Badge, Button, Code, Group, Modal, Select, Stack } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { DataTable } from '@/components/data-table'
import { LoadMore } from '@/components/load-more'
import { Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastDone, toastFailed } from '@/components/toasts'
import {
  useAskInputChange,
  useReturnToVersion,
  useVersion,
  useVersions,
  type InputChange,
  type Version,
} from '@/features/pipelines/api/pipelines'
import { toJson } from '@/lib/json'
import type { Pipeline } from '@/lib/queries/pipelines'
import { useMay } from '@/lib/queries/session'

import { givesUpPosition, StartsAnew } from './starts-anew'
import { VersionChanges } from './version-changes'

export function PipelineVersions({ pipeline }: { pipeline: Pipeline }) {
  const { t } = useTranslation()
  const versions = useVersions(pipeline.id)
  const [shown, setShown] = useState<number | null>(null)
  const mayEdit = useMay('editor')
  return (
    <Loaded query={versions}>
      {({ pages }) => (
        <>
          <DataTable
            label={t('pipelines.versions')}
            isFramed
            rows={pages.flatMap(({ results }) => results)}
            keyOf={({ number }) => String(number)}
            actions={mayEdit ? (version) => <ReturnButtons pipeline={pipeline} version={version} /> : undefined}
            detail={(version) => shown === version.number && <VersionDetail pipeline={pipeline} version={version} />}
            columns={[
              {
                name: 'number',
                title: t('pipelines.version'),
                cell: ({ number }) => (
                  <Group gap="xs">
                    <Anchor
                      component="button"
                      type="button"
                      onClick={() => setShown(shown === number ? null : number)}
                      aria-expanded={shown === number}
                    >
                      {number}
                    </Anchor>
                    {number === pipeline.published_version && (
                      <Badge variant="light" color="gray" tt="none">
                        {t('pipelines.isPublished')}
                      </Badge>
                    )}
                  </Group>
                ),
                isLead: true,
              },
              { name: 'note', title: t('publish.note'), cell: ({ note }) => note || '–', isWide: true },
              { name: 'author', title: t('pipelines.author'), cell: ({ author }) => author },
              { name: 'created', title: t('common.saved'), cell: ({ created_at }) => <Time at={created_at} />, isStill: true },
            ]}
          />
          <LoadMore query={versions} />
        </>
      )}
    </Loaded>
  )
}

interface ReturnProps {
  pipeline: Pipeline
  version: Version
}

function ReturnButtons({ pipeline, version }: ReturnProps) {
  return (
    <>
      {version.number !== pipeline.version && (
        <RestoreButton pipeline={pipeline} version={version} />
      )}
      {pipeline.published_version !== null && version.number < pipeline.published_version && (
        <RollBackButton pipeline={pipeline} version={version} />
      )}
    </>
  )
}

/** Saves the version as the newest one. */
function RestoreButton({ pipeline, version }: ReturnProps) {
  const { t } = useTranslation()
  const back = useReturnToVersion(pipeline.id, 'restore')
  const restore = () => back.mutate(version.number, { onSuccess: () => toastDone(t('common.saved')), onError: toastFailed })
  return (
    <Button size="compact-xs" variant="default" loading={back.isPending} onClick={restore}>
      {t('pipelines.restore')}
    </Button>
  )
}

/** Publishes the version again; asks before if the position in its input would be given up. */
export function RollBackButton({ pipeline, version }: ReturnProps) {
  const { t } = useTranslation()
  const { number } = version
  const back = useReturnToVersion(pipeline.id, 'roll-back')
  const askChange = useAskInputChange(pipeline.id)
  const [isAsking, setIsAsking] = useState(false)
  const [restart, setRestart] = useState<InputChange>()
  const close = () => setRestart(undefined)
  const rollBack = () => {
    close()
    back.mutate(number, { onSuccess: () => toastDone(t('pipelines.rolledBack', { version: number })), onError: toastFailed })
  }
  const ask = async () => {
    setIsAsking(true)
    try {
      const change = await askChange(number)
      if (givesUpPosition(change)) setRestart(change)
      else rollBack()
    } catch (error) {
      toastFailed(error)
    } finally {
      setIsAsking(false)
    }
  }
  return (
    <>
      <Button size="compact-xs" variant="default" loading={isAsking || back.isPending} onClick={() => void ask()}>
        {t('pipelines.rollBack')}
      </Button>
      <Modal opened={restart !== undefined} onClose={close} title={t('publish.rollBack', { version: number })} centered>
        {restart && <StartsAnew change={restart} />}
        <Group justify="flex-end" mt="lg">
          <Button variant="default" onClick={close}>
            {t('common.cancel')}
          </Button>
          <Button onClick={rollBack}>{t('pipelines.rollBack')}</Button>
        </Group>
      </Modal>
    </>
  )
}

/** What the version changed, and the whole of it. */
function VersionDetail({ pipeline, version }: { pipeline: Pipeline; version: Version }) {
  const { t } = useTranslation()
  const [since, setSince] = useState(String(version.number - 1))
  const whole = useVersion(pipeline.id, version.number)
  const others = Array.from({ length: pipeline.version }, (_, index) => String(index + 1))
  return (
    <Stack gap="sm">
      {version.number > 1 && (
        <>
          <Select
            w={200}
            size="xs"
            label={t('changes.since')}
            allowDeselect={false}
            data={others.filter((other) => other !== String(version.number)).map((value) => ({ value, label: t('changes.version', { number: value }) }))}
            value={since}
            onChange={(value) => value && setSince(value)}
          />
          <VersionChanges pipeline={pipeline} number={version.number} since={Number(since)} />
        </>
      )}
      <Loaded query={whole}>
        {({ config }) => (
          <Code block style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }}>
            {toJson(config, 2)}
          </Code>
        )}
      </Loaded>
    </Stack>
  )
}
