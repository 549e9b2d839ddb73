import { useQuery } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'

export type Connector = components['schemas']['Connector']
export type ConnectorType = components['schemas']['ConnectorType']

export const connectorKeys = {
  all: ['connectors'],
  one: (id: string) => ['connectors', id],
  types: ['connector-types'],
}

export function useConnectors() {
  return useQuery({
    queryKey: connectorKeys.all,
    queryFn: async () => (await dataOf(api.GET('/api/v1/connectors/', { params: { query: { page_size: 500 } } }))).results,
  })
}

export function useConnectorTypes() {
  return useQuery({
    queryKey: connectorKeys.types,
    queryFn: () => dataOf(api.GET('/api/v1/connector-types/')),
    staleTime: Infinity,
  })
}
