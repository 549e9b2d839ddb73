import { useDebouncedValue } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'
import type { components } from '@/lib/api/schema'
import { isCut, listed, typing } from '@/lib/queries/listing'

export type Connector = components['schemas']['Connector']
export type ConnectorType = components['schemas']['ConnectorType']

export const connectorKeys = {
  all: ['connectors'],
  list: (search: string) => ['connectors', 'list', search],
  one: (id: string) => ['connectors', id],
  types: ['connector-types'],
}

export function useConnectors(search = '') {
  return useQuery({
    queryKey: connectorKeys.list(search),
    queryFn: listed((page) => dataOf(api.GET('/api/v1/connectors/', { params: { query: { ...page, search } } }))),
  })
}

/** To choose from: all, or of too many those that the server finds by what is typed. */
export function useConnectorChoices(typed: string) {
  const [settled] = useDebouncedValue(typed, typing)
  return useConnectors(isCut(useConnectors().data) ? settled : '')
}

export function useConnectorTypes() {
  return useQuery({
    queryKey: connectorKeys.types,
    queryFn: () => dataOf(api.GET('/api/v1/connector-types/')),
    staleTime: Infinity,
  })
}
