import { useQuery } from '@tanstack/react-query'

/** Each component's state: "ok" or a sentence. Also answered, with status 503, when one is unavailable. */
export function useHealth() {
  return useQuery({
    queryKey: ['health'],
    queryFn: async () => (await fetch('/health/ready')).json() as Promise<Record<string, string>>,
    refetchInterval: 5000,
    retry: false,
  })
}
