import { useDebouncedValue } from '@mantine/hooks'
import { IconAlertTriangle, IconCircleCheck, IconCircleX, IconFilterOff } from '@tabler/icons-react'
import type { TFunction } from 'i18next'
import { useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'

import { useCapturedMessages, useDryRun, type CapturedMessage, type Config, type DryRun } from '@/features/pipelines/api/pipelines'
import { Problem, type FieldErrors } from '@/lib/api/problem'

import type { Look } from './flow-graph'
import { partPathOf, type Part } from './parts'
import { useNames } from './use-names'

/** A message to try: one that was received, by its id, until it is edited. */
export interface Sample {
  body: string
  isBase64: boolean
  contentType: string
  received?: string
}

/** In characters: each change of the draft sends the message to the server again. */
const mostOffered = 100_000

const noSample: Sample = { body: '', isBase64: false, contentType: 'application/json' }

export const sampleOf = (message: CapturedMessage): Sample => ({
  body: message.body,
  isBase64: message.is_base64,
  contentType: message.content_type,
  received: message.id,
})

export const triedOf = (sample: Sample, config: Config) => ({
  body: sample.body,
  is_base64: sample.isBase64,
  content_type: sample.contentType,
  config,
})

/** Dry runs of the draft while it is edited, with the newest received message until another one is selected. */
export function useTrial(id: string, config: Config) {
  const [chosen, setSample] = useState<Sample>()
  const [offered, setOffered] = useState<Sample>()
  const newest = useCapturedMessages(id, 1).data?.[0]
  // What comes in later does not replace what somebody is looking at.
  if (newest && !offered) setOffered(newest.body.length > mostOffered ? noSample : sampleOf(newest))
  const sample = chosen ?? offered ?? noSample
  // With the external APIs' answers, until the message or the configuration changes.
  const [answered, setAnswered] = useState<{ outcome: DryRun; sample: Sample; config: Config }>()
  const [tried] = useDebouncedValue({ sample, config }, 400)
  const run = useDryRun(id, triedOf(tried.sample, tried.config))
  const isFresh = answered?.sample === sample && answered.config === config
  return {
    sample,
    setSample,
    setAnswered: (outcome: DryRun) => setAnswered({ outcome, sample, config }),
    outcome: sample.body ? (isFresh ? answered.outcome : run.data) : undefined,
    isIncorrect: run.error instanceof Problem,
    // A step that was just added is not complete yet: nobody who did not choose to try it is told so before saving.
    errors: chosen?.body && run.error instanceof Problem ? run.error.errors : none,
  }
}

const none: FieldErrors = {}

/** What the nodes show while editing: problems, and what became of the message that is tried. */
export function useLooks(parts: Part[], problems: FieldErrors, outcome: DryRun | undefined): Map<string, Look> {
  const { t } = useTranslation()
  const namesOf = useNames()
  return useMemo(() => {
    const broken = new Set(Object.keys(problems).map(partPathOf))
    const steps = parts.filter(({ kind }) => kind === 'step').length
    const looks = new Map<string, Look>([['transforms', { title: t('flow.steps', { count: steps }), detail: '' }]])
    for (const part of parts) {
      const look: Look = namesOf(part)
      if (broken.has(part.path)) {
        look.state = { text: <IconAlertTriangle size={16} aria-hidden />, label: t('flow.incorrect'), tone: 'red' }
      } else if (part.kind === 'step') {
        look.state = stateOf(outcome, Number(part.path.split('.')[1]), t)
      }
      looks.set(part.path, look)
    }
    return looks
  }, [parts, problems, outcome, namesOf, t])
}

function stateOf(outcome: DryRun | undefined, index: number, t: TFunction): Look['state'] {
  const step = outcome?.steps[index]
  if (!outcome || !step) return undefined
  if (outcome.error && index === outcome.steps.length - 1) {
    return { text: <IconCircleX size={16} aria-hidden />, label: t('playground.deadLetter'), tone: 'red' }
  }
  if (!step.after.length) return { text: <IconFilterOff size={16} aria-hidden />, label: t('playground.dropped'), tone: 'yellow' }
  return { text: <IconCircleCheck size={16} aria-hidden />, label: t('flow.passed') }
}
