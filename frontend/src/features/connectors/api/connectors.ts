import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'
import { connectorKeys as keys } from '@/lib/queries/connectors'

export type ConnectorUser = components['schemas']['ConnectorUser']

export interface ConnectorDraft {
  name: string
  type: string
  connection: Record<string, unknown>
}

export function useConnector(id: string | undefined) {
  return useQuery({
    queryKey: keys.one(id ?? ''),
    queryFn: () => dataOf(api.GET('/api/v1/connectors/{id}/', { params: { path: { id: id ?? '' } } })),
    enabled: id !== undefined,
  })
}

export function useSaveConnector(id: string | undefined, etag: string | undefined) {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (draft: ConnectorDraft) =>
      id
        ? dataOf(api.PUT('/api/v1/connectors/{id}/', { params: { path: { id } }, body: draft, headers: { 'If-Match': etag } }))
        : dataOf(api.POST('/api/v1/connectors/', { body: draft })),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}

export function useDeleteConnector() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (id: string) => api.DELETE('/api/v1/connectors/{id}/', { params: { path: { id } } }),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}

/** Really connects, with what is typed; a saved connector's secrets stand in for their masks. */
export function useTestConnector(id: string | undefined) {
  return useMutation({
    mutationFn: ({ type, connection }: ConnectorDraft) =>
      id
        ? dataOf(api.POST('/api/v1/connectors/{id}/test/', { params: { path: { id } }, body: { connection } }))
        : dataOf(api.POST('/api/v1/connectors/test/', { body: { type, connection } })),
  })
}

export function useUsers(id: string | undefined) {
  return useQuery({ queryKey: [...keys.one(id ?? ''), 'used-by'], queryFn: () => usersOf(id ?? ''), enabled: id !== undefined })
}

/** What uses a connector, which cannot be deleted then. */
export function usersOf(id: string): Promise<ConnectorUser[]> {
  return dataOf(api.GET('/api/v1/connectors/{id}/used-by/', { params: { path: { id } } }))
}

/** The address of its page; what is still to be removed from a system has none. */
export function pageOf({ kind, id }: ConnectorUser): string | undefined {
  switch (kind) {
    case 'pipeline':
      return `/pipelines/${id}`
    case 'connector':
      return `/connectors/${id}/edit`
    case 'alert_rule':
      return '/alerts'
    case 'registration':
      return undefined
  }
}

/** By connector, how many pipelines use it and its last error; those that none uses are left out. */
export function useConnectorActivity() {
  return useQuery({
    queryKey: [...keys.all, 'activity'],
    queryFn: async () => new Map((await dataOf(api.GET('/api/v1/connector-activity/'))).map((activity) => [activity.connector, activity])),
    refetchInterval: 60_000,
  })
}
