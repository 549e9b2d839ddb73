import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'
import { listed } from '@/lib/queries/listing'
import type { Role } from '@/lib/queries/session'

export type Member = components['schemas']['Member']
export type ApiKey = components['schemas']['ApiKey']
export type Scope = ApiKey['scopes'][number]

export const scopes: Scope[] = ['ingest', 'read', 'write']

const keys = { members: ['members'], apiKeys: ['api-keys'] }

export function useMembers(search = '') {
  return useQuery({
    queryKey: [...keys.members, search],
    queryFn: listed((page) => dataOf(api.GET('/api/v1/members/', { params: { query: { ...page, search } } }))),
  })
}

function useMembersMutation<T>(mutationFn: (input: T) => Promise<unknown>) {
  const client = useQueryClient()
  return useMutation({ mutationFn, onSuccess: () => client.invalidateQueries({ queryKey: keys.members }) })
}

export function useAddMember() {
  return useMembersMutation((body: { username: string; role: Role }) => api.POST('/api/v1/members/', { body }))
}

export function useChangeMember() {
  return useMembersMutation(({ id, role }: { id: number; role: Role }) =>
    api.PATCH('/api/v1/members/{id}/', { params: { path: { id } }, body: { role } }),
  )
}

export function useRemoveMember() {
  return useMembersMutation((id: number) => api.DELETE('/api/v1/members/{id}/', { params: { path: { id } } }))
}

export function useApiKeys(search: string) {
  return useQuery({
    queryKey: [...keys.apiKeys, search],
    queryFn: listed((page) => dataOf(api.GET('/api/v1/api-keys/', { params: { query: { ...page, search } } }))),
  })
}

export function useCreateApiKey() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (body: { name: string; scopes: Scope[]; expires_at: string | null }) =>
      dataOf(api.POST('/api/v1/api-keys/', { body })),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.apiKeys }),
  })
}

export function useRevokeApiKey() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (id: string) => api.DELETE('/api/v1/api-keys/{id}/', { params: { path: { id } } }),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.apiKeys }),
  })
}
