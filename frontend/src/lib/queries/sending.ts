import { useMutation, useQueryClient } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'

/** Sends one message through the published version, as a program would by HTTP. */
export function useSendMessage(pipeline: string) {
  return useMutation({
    mutationFn: (body: string) =>
      dataOf(api.POST('/api/v1/pipelines/{id}/send-message/', { params: { path: { id: pipeline } }, body: { body } })),
  })
}

/** A key with which messages may be sent, and nothing else. Its text is answered once. */
export function useCreateIngestKey() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (name: string) =>
      dataOf(api.POST('/api/v1/api-keys/', { body: { name, scopes: ['ingest'], expires_at: null } })),
    onSuccess: () => client.invalidateQueries({ queryKey: ['api-keys'] }),
  })
}
