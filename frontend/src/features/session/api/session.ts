import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'

const key = ['me']

export function useMe() {
  return useQuery({
    queryKey: key,
    queryFn: async () => {
      const me = await dataOf(api.GET('/api/v1/me/'))
      // A workspace that was chosen once may be no longer theirs.
      if (!me.workspaces.some(({ slug }) => slug === localStorage.getItem('workspace'))) {
        localStorage.removeItem('workspace')
      }
      return me
    },
    staleTime: 60_000,
  })
}

/** The workspace that the console shows. */
export function useWorkspace() {
  const { data: me } = useMe()
  return me?.workspaces.find(({ slug }) => slug === localStorage.getItem('workspace')) ?? me?.workspaces[0]
}

export function useRole() {
  return useWorkspace()?.role
}

/** Shows another workspace. A full load drops everything that was fetched for the former one. */
export function chooseWorkspace(slug: string) {
  localStorage.setItem('workspace', slug)
  location.assign('/pipelines')
}

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
