import { Center, Loader } from '@mantine/core'
import type { ReactNode } from 'react'
import { Navigate, useLocation } from 'react-router'

import { Loaded } from '@/components/states'
import { Problem } from '@/lib/api/problem'
import { useMe } from '@/lib/queries/session'

/** Shows its children to who is signed in; others sign in first and come back. */
export function RequireSession({ children }: { children: ReactNode }) {
  const me = useMe()
  const location = useLocation()
  if (me.error instanceof Problem && [401, 403].includes(me.error.status)) {
    return <Navigate to="/login" replace state={{ from: location.pathname }} />
  }
  if (me.isPending) {
    return (
      <Center h="100vh">
        <Loader />
      </Center>
    )
  }
  return <Loaded query={me}>{() => children}</Loaded>
}
