import { useQuery } from '@tanstack/react-query'

import { api, dataOf } from '@/lib/api/client'

export function useKafkaProxies() {
  return useQuery({
    queryKey: ['kafka-proxies'],
    queryFn: () => dataOf(api.GET('/api/v1/kafka-proxies/')),
    refetchInterval: 2000,
  })
}
