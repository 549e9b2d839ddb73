import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'

export type Job = components['schemas']['Job']
export type Resources = Required<components['schemas']['PatchedResourcesRequest']>

const keys = { all: ['jobs'], log: (name: string) => ['jobs', name, 'log'] }

export function useJobs() {
  return useQuery({ queryKey: keys.all, queryFn: () => dataOf(api.GET('/api/v1/jobs/')), refetchInterval: 2000 })
}

export function useJobLog(name: string) {
  return useQuery({
    queryKey: keys.log(name),
    queryFn: () => dataOf(api.GET('/api/v1/jobs/{name}/log/', { params: { path: { name }, query: { lines: 200 } } })),
    refetchInterval: 5000,
  })
}

export function useSetJob() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: ({ name, run }: { name: string; run: boolean }) =>
      run
        ? dataOf(api.POST('/api/v1/jobs/{name}/start/', { params: { path: { name } } }))
        : dataOf(api.POST('/api/v1/jobs/{name}/stop/', { params: { path: { name } } })),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}

export function useChangeResources(name: string) {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (body: Resources) =>
      dataOf(api.PATCH('/api/v1/jobs/{name}/resources/', { params: { path: { name } }, body })),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}
