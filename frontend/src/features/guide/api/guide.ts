import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import { connectorKeys } from '@/lib/queries/connectors'
import { pipelineKeys } from '@/lib/queries/pipelines'

/** Where the built-in receiver is, in an installation with the demo. */
export function useHasReceiver() {
  return useQuery({
    queryKey: ['demo', 'generator'],
    queryFn: () => dataOf(api.GET('/api/v1/demo/generator/')),
    retry: false,
    select: () => true,
  })
}

export interface First {
  name: string
  url: string
}

/** Makes what a first message needs: a connector to the URL and a published pipeline that delivers to it. */
export function useFirstPipeline() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: async ({ name, url }: First) => {
      const connector = await dataOf(api.POST('/api/v1/connectors/', { body: { name, type: 'http', connection: { url } } }))
      const config = { input: { type: 'http' as const }, outputs: [{ name: 'receiver', connector: connector.id }] }
      const { id } = await dataOf(api.POST('/api/v1/pipelines/', { body: { name, config: config as never } }))
      return dataOf(api.POST('/api/v1/pipelines/{id}/publish/', { params: { path: { id } } }))
    },
    onSettled: () =>
      Promise.all([
        client.invalidateQueries({ queryKey: connectorKeys.all }),
        client.invalidateQueries({ queryKey: pipelineKeys.all }),
      ]),
  })
}

interface Taken {
  message_id: string
  body: string
}

/** What the built-in receiver got under a name, newest last. */
export function useTaken(name: string) {
  return useQuery({
    queryKey: ['demo', 'taken', name],
    queryFn: async () => {
      const answer = await fetch(`/demo/receiver/${name}/messages`)
      if (!answer.ok) throw new Error(answer.statusText)
      return (await answer.json()) as Taken[]
    },
    enabled: name !== '',
    refetchInterval: 1000,
  })
}
