import { useInfiniteQuery, useMutation, useQueries, useQuery, useQueryClient, type UseQueryResult } from '@tanstack/react-query'
import { useEffect, useRef, useState } from 'react'

import { api, dataOf, exactDataOf } from '@/lib/api/client'
import { cursorOf } from '@/lib/api/cursor'
import type { components } from '@/lib/api/schema'
import { inTurn, type Progress } from '@/features/pipelines/in-turn'
import { toJson } from '@/lib/json'
import { pipelineKeys as keys, type Pipeline } from '@/lib/queries/pipelines'

/** A configuration that is being edited: the server is the one to say what it lacks. */
export type Config = Record<string, unknown>
type Complete = NonNullable<components['schemas']['DryRunRequestRequest']['config']>

export interface PipelineDraft {
  name: string
  config: Config
}

export type Action = 'pause' | 'resume'

const byId = (id: string) => ({ params: { path: { id } } })

export function usePipeline(id: string | undefined) {
  return useQuery({
    queryKey: keys.one(id ?? ''),
    queryFn: () => exactDataOf<Pipeline>(api.GET('/api/v1/pipelines/{id}/', { ...byId(id ?? ''), parseAs: 'text' })),
    enabled: id !== undefined,
    refetchInterval: (query) => (query.state.data?.provisioning?.state === 'provisioning' ? 2000 : false),
  })
}

/** The JSON Schema of a pipeline's configuration. */
export function usePipelineSchema() {
  return useQuery({
    queryKey: ['pipeline-schema'],
    queryFn: () => dataOf(api.GET('/api/v1/pipelines/schema/')),
    staleTime: Infinity,
  })
}

export type Version = components['schemas']['Version']
type WholeVersion = components['schemas']['WholeVersion']
export type Change = components['schemas']['Change']

export type Activity = components['schemas']['Activity']

/** The server answers for so many pipelines at once. */
const activityOf = 100

/** The last 24 hours of each pipeline, by its id, as far as they are known. */
export function useActivity(ids: string[]): Map<string, Activity> {
  const parts = Array.from({ length: Math.ceil(ids.length / activityOf) }, (_, part) => ids.slice(part * activityOf, (part + 1) * activityOf))
  return useQueries({
    // Each part by itself, since the list grows while it is loaded.
    queries: parts.map((part) => ({
      queryKey: ['activity', part],
      queryFn: () => dataOf(api.GET('/api/v1/activity/', { params: { query: { pipelines: part.join(',') } } })),
      refetchInterval: 60_000,
    })),
    combine: byPipeline,
  })
}

const byPipeline = (parts: UseQueryResult<Activity[]>[]) =>
  new Map(parts.flatMap(({ data = [] }) => data.map((activity) => [activity.pipeline, activity] as const)))

export function useMetrics(id: string) {
  return useQuery({
    queryKey: keys.part(id, 'metrics'),
    queryFn: () =>
      dataOf(api.GET('/api/v1/pipelines/{id}/metrics/', { params: { path: { id }, query: { minutes: 5 } } })),
    refetchInterval: 10_000,
  })
}

export function useHistory(id: string, hours: number) {
  return useQuery({
    queryKey: [...keys.part(id, 'history'), hours],
    queryFn: () =>
      dataOf(api.GET('/api/v1/pipelines/{id}/history/', { params: { path: { id }, query: { hours } } })),
    refetchInterval: 60_000,
  })
}

export function useErrors(id: string) {
  return useQuery({
    queryKey: keys.part(id, 'errors'),
    queryFn: () => dataOf(api.GET('/api/v1/pipelines/{id}/errors/', byId(id))),
    refetchInterval: 3000,
  })
}

export type InputState = components['schemas']['InputState']

/** How the published input is being read. */
export function useInputState(id: string) {
  return useQuery({
    queryKey: keys.part(id, 'input-state'),
    queryFn: () => dataOf(api.GET('/api/v1/pipelines/{id}/input-state/', byId(id))),
    refetchInterval: 3000,
  })
}

export function useVersions(id: string) {
  return useInfiniteQuery({
    queryKey: keys.part(id, 'versions'),
    initialPageParam: '',
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET('/api/v1/pipelines/{id}/versions/', {
          params: { path: { id }, query: pageParam ? { cursor: pageParam } : {} },
        }),
      ),
    getNextPageParam: (page) => cursorOf(page.next),
  })
}

/** A version with its configuration; nothing without a number. */
export function useVersion(id: string, number: number | null) {
  return useQuery({
    enabled: number !== null,
    queryKey: [...keys.part(id, 'version'), number],
    queryFn: () =>
      exactDataOf<WholeVersion>(
        api.GET('/api/v1/pipelines/{id}/versions/{number}/', {
          params: { path: { id, number: number ?? 0 } },
          parseAs: 'text',
        }),
      ),
  })
}

/** What a version changed since another one. */
export function useVersionChanges(id: string, number: number, since: number) {
  return useQuery({
    queryKey: [...keys.part(id, 'changes'), number, since],
    queryFn: () =>
      exactDataOf<Change[]>(
        api.GET('/api/v1/pipelines/{id}/versions/{number}/changes/', {
          params: { path: { id, number }, query: { since } },
          parseAs: 'text',
        }),
      ),
  })
}

export type InputChange = components['schemas']['InputChange']

const inputChange = (id: string, number: number) => ({
  queryKey: [...keys.part(id, 'input-change'), number],
  queryFn: () =>
    dataOf(api.GET('/api/v1/pipelines/{id}/versions/{number}/input-change/', { params: { path: { id, number } } })),
})

/** Whether the input starts anew when a version is published. */
export function useInputChange(id: string, number: number) {
  return useQuery(inputChange(id, number))
}

/** Fetches the same answer on demand. */
export function useAskInputChange(id: string) {
  const client = useQueryClient()
  return (number: number) => client.fetchQuery(inputChange(id, number))
}

export type CapturedMessage = components['schemas']['CapturedMessage']

/** The newest messages that came in; none of a pipeline that is not saved yet. */
export function useCapturedMessages(id: string, limit: number) {
  return useQuery({
    enabled: id !== '',
    queryKey: [...keys.part(id, 'messages'), limit],
    queryFn: () => dataOf(api.GET('/api/v1/pipelines/{id}/messages/', { params: { path: { id }, query: { limit } } })),
  })
}

/** The fields that the newest messages have. */
export function useMessageFields(id: string | undefined) {
  return useQuery({
    queryKey: keys.part(id ?? '', 'fields'),
    queryFn: () => dataOf(api.GET('/api/v1/pipelines/{id}/fields/', byId(id ?? ''))),
    enabled: id !== undefined,
  })
}

export type DryRun = components['schemas']['DryRun']

const asSent = <T extends { config: Config }>(draft: T) => ({ ...draft, config: draft.config as Complete })

interface Tried {
  body: string
  is_base64: boolean
  content_type: string
  config: Config
}

/** What a configuration makes of a message, without calling external APIs. */
export function useDryRun(id: string, tried: Tried) {
  return useQuery({
    queryKey: [...keys.part(id, 'dry-run'), toJson(tried)],
    queryFn: () => dataOf(api.POST('/api/v1/pipelines/{id}/dry-run/', { ...byId(id), body: { ...asSent(tried), call_apis: false } })),
    enabled: tried.body !== '',
    retry: false,
    placeholderData: (before) => before,
  })
}

/** The same, with the external APIs' real answers. */
export function useCallApis(id: string) {
  return useMutation({
    mutationFn: (tried: Tried) =>
      dataOf(api.POST('/api/v1/pipelines/{id}/dry-run/', { ...byId(id), body: { ...asSent(tried), call_apis: true } })),
  })
}

/** What a configuration makes of a received message, and how that differs from what was delivered of it. */
export function useReplay(id: string, message: string, config: Config) {
  return useQuery({
    queryKey: [...keys.part(id, 'replay'), message, toJson(config)],
    queryFn: () =>
      dataOf(
        api.POST('/api/v1/pipelines/{id}/messages/{message_id}/replay/', {
          params: { path: { id, message_id: message } },
          body: { ...asSent({ config }), call_apis: false },
        }),
      ),
    retry: false,
    placeholderData: (before) => before,
  })
}

/** Whether a configuration keeps to its examples. */
export function useCheckedExamples(id: string, config: Config) {
  return useQuery({
    queryKey: [...keys.part(id, 'examples'), toJson(config)],
    queryFn: () => dataOf(api.POST('/api/v1/pipelines/{id}/check-examples/', { ...byId(id), body: asSent({ config }) })),
    retry: false,
    placeholderData: (before) => before,
  })
}

export function useSavePipeline(id: string | undefined, etag: string | undefined) {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (body: PipelineDraft) =>
      id
        ? dataOf(api.PUT('/api/v1/pipelines/{id}/', { ...byId(id), body: asSent(body), headers: { 'If-Match': etag } }))
        : dataOf(api.POST('/api/v1/pipelines/', { body: asSent(body) })),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}

export function usePipelineAction(id: string) {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (action: Action) => dataOf(api.POST(`/api/v1/pipelines/{id}/${action}/`, byId(id))),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}

/** Pauses or resumes many, one after the other; it ends early with the component that does it. */
export function useActOnMany(action: Action) {
  const client = useQueryClient()
  const [progress, setProgress] = useState<Progress<Pipeline>>()
  const isStopped = useRef(false)
  const stop = () => {
    isStopped.current = true
  }
  useEffect(
    () => () => {
      isStopped.current = true
    },
    [],
  )
  const start = async (pipelines: Pipeline[]) => {
    isStopped.current = false
    const act = ({ id }: Pipeline) => api.POST(`/api/v1/pipelines/{id}/${action}/`, byId(id))
    const outcome = await inTurn(pipelines, act, setProgress, () => isStopped.current)
    void client.invalidateQueries({ queryKey: keys.all })
    return outcome
  }
  return { progress, start, stop }
}

/** Publishes the newest version, with a note on what it changes. */
export function usePublish(id: string) {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (note: string) => dataOf(api.POST('/api/v1/pipelines/{id}/publish/', { ...byId(id), body: { note } })),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}

/** Brings an earlier version back: `restore` saves it as the newest, `roll-back` also publishes it. */
export function useReturnToVersion(id: string, how: 'restore' | 'roll-back') {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (number: number) =>
      dataOf(api.POST(`/api/v1/pipelines/{id}/versions/{number}/${how}/`, { params: { path: { id, number } } })),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}

export function useDeletePipeline() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (id: string) => api.DELETE('/api/v1/pipelines/{id}/', byId(id)),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}
