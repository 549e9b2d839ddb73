import { useQuery } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'

export type Role = components['schemas']['Member']['role']

/** From the one that may least to the one that may most; each may what those before it may. */
export const roles: Role[] = ['viewer', 'operator', 'editor', 'admin']

/** Whether a role reaches the one that is needed. */
export function includes(role: Role | undefined, needed: Role): boolean {
  return role !== undefined && roles.indexOf(role) >= roles.indexOf(needed)
}

/** Whether the user's role in the workspace allows what needs this one. */
export function useMay(needed: Role): boolean {
  return includes(useRole(), needed)
}

export function useMe() {
  return useQuery({
    queryKey: ['me'],
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
  location.assign('/')
}
