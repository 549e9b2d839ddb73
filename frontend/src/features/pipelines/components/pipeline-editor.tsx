import { Button, Card, Grid, Group, SegmentedControl, Skeleton, Stack, Text, TextInput } from '@mantine/core'
import { IconArrowBackUp, IconPlus } from '@tabler/icons-react'
import { lazy, Suspense, useCallback, useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, useNavigate, useParams, useSearchParams } from 'react-router'

import { useDraft } from '@/components/draft'
import { LoadedPage, Page } from '@/components/page'
import { ProblemList } from '@/components/problem-list'
import { toastDone, toastFailed } from '@/components/toasts'
import { useUnsaved } from '@/components/unsaved-guard'
import { usePipeline, usePipelineSchema, useSavePipeline, type Config, type PipelineDraft } from '@/features/pipelines/api/pipelines'
import { Flow } from '@/features/pipelines/flow'
import { useFieldTitles } from '@/features/pipelines/flow/field-titles'
import { MoreParts } from '@/features/pipelines/flow/more-parts'
import { fieldIdOf } from '@/features/pipelines/flow/part-form'
import { PartPanel } from '@/features/pipelines/flow/part-panel'
import { partPathOf, partsOf, withAdded, withMoved, withoutPart, withPart } from '@/features/pipelines/flow/parts'
import { StepPicker } from '@/features/pipelines/flow/step-picker'
import { useLooks, useTrial } from '@/features/pipelines/flow/trial'
import { TemplateMenu } from '@/features/pipelines/flow/template-menu'
import { TryPanel } from '@/features/pipelines/flow/try-panel'
import { Problem, type FieldErrors } from '@/lib/api/problem'
import { below } from '@/lib/error-paths'
import { focusOn } from '@/lib/focus'
import type { Pipeline } from '@/lib/queries/pipelines'
import { includes, useRole } from '@/lib/queries/session'

const ConfigText = lazy(async () => ({ default: (await import('@/features/pipelines/flow/config-text')).ConfigText }))

/** What stands beside the picture. */
type Side = 'part' | 'try' | 'yaml'

const nameId = 'pipeline-name'

export function PipelineEditorPage() {
  const { id } = useParams()
  const query = usePipeline(id)
  if (!id) return <Editor draft={{ name: '', config: { input: { type: 'http' }, outputs: [{}] } }} />
  return (
    <LoadedPage query={query}>
      {(saved) => <Editor saved={saved} draft={{ name: saved.name, config: { ...saved.config } }} errors={provisioningErrors(saved)} />}
    </LoadedPage>
  )
}

/** Why the newest version could not be prepared in other systems, by field. */
function provisioningErrors({ provisioning, version }: Pipeline): FieldErrors {
  const steps = provisioning?.version === version ? provisioning.steps : []
  return Object.fromEntries(steps.flatMap(({ field, error }) => (field && error ? [[field, [error]]] : [])))
}

/** The schema of what is edited, once it is known. Options of connectors, which it does not have, hold no secrets. */
function useDraftSchema() {
  const config = usePipelineSchema().data
  return useMemo(() => config && { ...config, properties: { config } }, [config])
}

interface EditorProps {
  saved?: Pipeline
  draft: PipelineDraft
  errors?: FieldErrors
}

/** A pipeline's picture, in which it is changed: a click opens a part at the side. */
function Editor(props: EditorProps) {
  const { saved } = props
  const id = saved?.id
  const { t } = useTranslation()
  const navigate = useNavigate()
  const mayEdit = includes(useRole(), 'editor')
  const [parameters] = useSearchParams()
  const [draft, setDraft] = useState(props.draft)
  const [isDirty, setDirty] = useState(false)
  const [errors, setErrors] = useState(props.errors ?? {})
  // The one that was read when editing began: what was saved meanwhile is not overwritten.
  const [etag] = useState(saved?.etag)
  const [selected, setSelected] = useState(parameters.get('part') ?? (saved ? 'input' : 'outputs.0'))
  const [side, setSide] = useState<Side>(parameters.get('side') === 'try' ? 'try' : 'part')
  const [isPicking, setPicking] = useState(false)
  const save = useSavePipeline(id, etag)
  const { offer, isKept, restored, forget } = useDraft({
    kind: 'pipeline',
    thing: id ?? 'new',
    base: etag,
    value: draft,
    isDirty,
    schema: useDraftSchema(),
    onRestore: (value) => {
      setDraft(value)
      setDirty(true)
      setUndoable(undefined)
      setErrors({})
    },
  })
  const { guard, release } = useUnsaved(isDirty, isKept)
  const trial = useTrial(id ?? '', draft.config)
  const parts = useMemo(() => partsOf(draft.config), [draft.config])
  const part = parts.find(({ path }) => path === selected)
  const problems = useMemo(() => ({ ...below(trial.errors, 'config'), ...below(errors, 'config') }), [trial.errors, errors])
  const looks = useLooks(parts, problems, side === 'try' ? trial.outcome : undefined)

  // What the last addition, move or removal changed; typing makes it stale.
  const [undoable, setUndoable] = useState<Config>()

  const change = useCallback((config: Config, isTyped = true) => {
    setDraft((before) => ({ ...before, config }))
    if (!isTyped) return
    setDirty(true)
    setUndoable(undefined)
  }, [])
  const rearrange = (config: Config) => {
    change(config)
    setUndoable(draft.config)
  }
  const select = useCallback((path: string) => {
    setSelected(path)
    setSide('part')
  }, [])
  const move = useCallback(
    (from: number, to: number) => {
      setUndoable(draft.config)
      setDraft((before) => ({ ...before, config: withMoved(before.config, from, to) }))
      setSelected(`transforms.${to}`)
      setDirty(true)
    },
    [draft.config],
  )
  const add = (field: 'transforms' | 'outputs', value: Record<string, unknown>) => {
    const added = withAdded(draft.config, field, value)
    rearrange(added.config)
    select(added.path)
  }
  const remove = (path: string) => {
    rearrange(withoutPart(draft.config, path))
    setErrors({})
    setSelected('')
  }
  const jump = (field: string) => {
    const path = partPathOf(field)
    if (path) select(path)
    focusOn(field === 'name' ? nameId : fieldIdOf(field))
  }

  const titles = useFieldTitles()
  const titleOf = (field: string) => (field === 'name' ? t('common.name') : titles(draft.config, field))

  function submit() {
    save.mutate(draft, {
      onSuccess: (pipeline) => {
        toastDone(t('common.saved'))
        forget()
        release()
        void navigate(`/pipelines/${pipeline.id}`)
      },
      onError: (error) => {
        const faults = error instanceof Problem ? error.errors : {}
        setErrors(faults)
        const [first] = Object.keys(faults)
        if (first === undefined) toastFailed(error)
        else jump(first.replace(/^config\./, ''))
      },
    })
  }

  return (
    <Page
      parentTitle={saved?.name}
      title={saved ? t('pipelines.editTitle', { name: saved.name }) : t('pipelines.newTitle')}
      purpose={isDirty ? t('flow.unsaved') : t('pipelines.editPurpose')}
      action={
        <Group gap="xs">
          <Button variant="default" component={Link} to={id ? `/pipelines/${id}` : '/pipelines'}>
            {t('common.cancel')}
          </Button>
          {mayEdit && (
            <Button onClick={submit} loading={save.isPending}>
              {t('common.save')}
            </Button>
          )}
        </Group>
      }
    >
      {guard}
      {offer}
      <Stack gap="md">
        <TextInput
          id={nameId}
          label={t('common.name')}
          required
          maw={420}
          value={draft.name}
          error={errors.name?.join(' ')}
          onChange={({ currentTarget: { value: name } }) => {
            setDraft((before) => ({ ...before, name }))
            setDirty(true)
          }}
        />
        <ProblemList errors={{ ...(errors.name && { name: errors.name }), ...problems }} onJump={jump} nameOf={titleOf} />
        <Grid gap="md">
          <Grid.Col span={{ base: 12, lg: 7 }}>
            <Group gap="xs" mb="xs">
              <Button size="xs" variant="default" leftSection={<IconPlus size={14} />} onClick={() => setPicking(true)}>
                {t('flow.addStep')}
              </Button>
              <Button size="xs" variant="default" leftSection={<IconPlus size={14} />} onClick={() => add('outputs', {})}>
                {t('flow.addOutput')}
              </Button>
              <MoreParts
                config={draft.config}
                onAdd={(path, value) => {
                  rearrange(withPart(draft.config, path, value))
                  select(path)
                }}
              />
              {!id && <TemplateMenu onPick={rearrange} />}
              {undoable && (
                <Button size="xs" variant="subtle" leftSection={<IconArrowBackUp size={14} />} onClick={() => change(undoable)}>
                  {t('flow.undo')}
                </Button>
              )}
            </Group>
            <Flow
              parts={parts}
              looks={looks}
              selected={side === 'part' ? selected : undefined}
              onSelect={select}
              onMove={move}
            />
            <Text size="xs" c="dimmed" mt={6}>
              {t('flow.moveHint')}
            </Text>
          </Grid.Col>
          <Grid.Col span={{ base: 12, lg: 5 }}>
            <Card withBorder>
              <SegmentedControl<Side>
                fullWidth
                size="xs"
                mb="md"
                aria-label={t('flow.side')}
                value={side}
                onChange={setSide}
                data={[
                  { value: 'part', label: t('flow.sides.part') },
                  ...(id ? [{ value: 'try' as const, label: t('flow.sides.try') }] : []),
                  { value: 'yaml', label: t('flow.sides.yaml') },
                ]}
              />
              {side === 'part' &&
                (part ? (
                  <PartPanel
                    key={`${part.path} ${restored}`}
                    pipeline={id}
                    part={part}
                    steps={parts.filter(({ kind }) => kind === 'step').length}
                    errors={problems}
                    outcome={trial.outcome}
                    onChange={(value, isTyped) => change(withPart(draft.config, part.path, value), isTyped)}
                    onMove={move}
                    onRemove={() => remove(part.path)}
                    onSubmit={submit}
                  />
                ) : (
                  <Text size="sm" c="dimmed">
                    {t('flow.selectPart')}
                  </Text>
                ))}
              {side === 'try' && id && (
                <TryPanel
                  pipeline={id}
                  config={draft.config}
                  sample={trial.sample}
                  onSample={trial.setSample}
                  outcome={trial.outcome}
                  isIncorrect={trial.isIncorrect}
                  onAnswer={trial.setAnswered}
                  onExamples={(examples) => change({ ...draft.config, examples })}
                />
              )}
              {side === 'yaml' && (
                <Suspense fallback={<Skeleton height={320} />}>
                  <ConfigText config={draft.config} onChange={change} />
                </Suspense>
              )}
            </Card>
          </Grid.Col>
        </Grid>
      </Stack>
      <StepPicker
        opened={isPicking}
        onClose={() => setPicking(false)}
        onPick={(type) => {
          setPicking(false)
          add('transforms', { type })
        }}
      />
    </Page>
  )
}
