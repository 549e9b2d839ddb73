import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'

/** How people sign in to this installation. */
export function useSignInOptions() {
  return useQuery({
    queryKey: ['sign-in-options'],
    queryFn: () => dataOf(api.GET('/api/v1/session/')),
    staleTime: Infinity,
  })
}

export function useSignIn() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (body: { username: string; password: string }) => api.POST('/api/v1/session/', { body }),
    onSuccess: () => client.resetQueries(),
  })
}

export function useSignOut() {
  return useMutation({
    mutationFn: () => dataOf(api.DELETE('/api/v1/session/')),
    // A full load drops everything that was fetched for this person, and the socket.
    onSuccess: ({ redirect }) => location.assign(redirect),
  })
}
