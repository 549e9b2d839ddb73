import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'

const key = ['demo', 'generator']

/** Answers with an error where there is no demo. */
export function useGenerator() {
  return useQuery({ queryKey: key, queryFn: () => dataOf(api.GET('/api/v1/demo/generator/')), retry: false })
}

export function useSetGenerator() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (rate: number) => dataOf(api.PUT('/api/v1/demo/generator/', { body: { rate } })),
    onSuccess: (data) => client.setQueryData(key, data),
  })
}
