import type { components } from '@/lib/api/schema'
import type { Condition } from '@/lib/queries/conditions'
import type { Pipeline } from '@/lib/queries/pipelines'

export type Finding = components['schemas']['Finding']
export type State = Finding['state']
export type Status = components['schemas']['Status']

/** The worst first, as the server orders them; the type sees to it that none is left out. */
const severity: Record<State, number> = {
  failing: 0,
  blocked: 1,
  input_failing: 2,
  paused: 3,
  degraded: 4,
  starting: 5,
  provisioning: 6,
  draft: 7,
  unpublished: 8,
  unknown: 9,
  delivering: 10,
  idle: 11,
}

export const states = (Object.keys(severity) as State[]).sort((a, b) => severity[a] - severity[b])

/** In which somebody has to look after it. */
const troubles: State[] = ['failing', 'blocked', 'input_failing', 'degraded']

/** Which only say whether messages flow. */
const flows: State[] = ['starting', 'unknown', 'delivering', 'idle']

export const severityOf = (state: State) => severity[state]

export const isTrouble = ({ state }: Finding) => troubles.includes(state)

export const isOfFlow = ({ state }: Finding) => flows.includes(state)

const idle: Status = { state: 'idle', reason: '', place: '', error: '', since: null, until: null, action: null, more: [] }

/** The newest that is known: idle pipelines of which there is nothing to say have no condition. */
export function statusOf(pipeline: Pipeline, conditions: Map<string, Condition> | undefined): Status {
  return conditions ? (conditions.get(pipeline.id)?.status ?? idle) : pipeline.status
}

/** Why somebody has to look after it, the worst first. */
export const troublesOf = (status: Status): Finding[] => [status, ...status.more].filter(isTrouble)

export interface Need {
  pipeline: { id: string; name: string }
  finding: Finding
}

/** Everything that needs somebody, the worst first. */
export function needsOf(conditions: Condition[], nameOf: (id: string) => string): Need[] {
  return conditions
    .flatMap(({ pipeline: id, status }) => troublesOf(status).map((finding) => ({ pipeline: { id, name: nameOf(id) }, finding })))
    .sort((a, b) => severity[a.finding.state] - severity[b.finding.state])
}
