import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import { cursorOf } from '@/lib/api/cursor'
import type { components } from '@/lib/api/schema'

export type Collection = components['schemas']['Collection']
export type CollectionDetail = components['schemas']['CollectionDetail']
export type CollectionPartition = components['schemas']['CollectionPartition']
export type CollectionDocument = components['schemas']['Document']

/** The API's milliseconds as the rest of the console has times. */
export function moment(milliseconds: number | null): string | null {
  return milliseconds === null ? null : new Date(milliseconds).toISOString()
}

/** Which documents are shown: those of one partition, or those with a key. */
export interface Documents {
  partition?: number
  key?: string
}

const keys = {
  all: ['collections'],
  list: ['collections', 'list'],
  one: (id: string) => ['collections', 'one', id],
  documents: (id: string, documents: Documents) => ['collections', 'documents', id, documents],
}

const fresh = 5000
const page = 20

export function useCollections() {
  return useInfiniteQuery({
    queryKey: keys.list,
    initialPageParam: '',
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET('/api/v1/collections/', { params: { query: (pageParam ? { cursor: pageParam } : {}) as Record<string, never> } }),
      ),
    getNextPageParam: ({ next }) => cursorOf(next),
    refetchInterval: fresh,
  })
}

export function useCollection(id: string) {
  return useQuery({
    queryKey: keys.one(id),
    queryFn: () => dataOf(api.GET('/api/v1/collections/{id}/', { params: { path: { id } } })),
    refetchInterval: fresh,
  })
}

/** The newest first; further pages are older, and who reads them is not disturbed by newer ones. */
export function useDocuments(id: string, documents: Documents) {
  return useInfiniteQuery({
    queryKey: keys.documents(id, documents),
    initialPageParam: null as number | null,
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET('/api/v1/collections/{id}/documents/', {
          params: { path: { id }, query: { ...documents, limit: page, ...(pageParam !== null && { before: pageParam }) } },
        }),
      ),
    getNextPageParam: ({ before }) => before,
    refetchInterval: ({ state }) => (state.data?.pages.length === 1 ? fresh : false),
  })
}

export function useResetCollection() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (id: string) => dataOf(api.POST('/api/v1/collections/{id}/reset/', { params: { path: { id } } })),
    onSettled: () => client.invalidateQueries({ queryKey: keys.all }),
  })
}
