import i18next from 'i18next'
import { expect, test } from 'vitest'

import en from '@/locales/en.json'

import { reasonLabel } from './reasons'

test('reasons are labels, quoted answers, or themselves', async () => {
  const t = await i18next.createInstance().init({ lng: 'en', resources: { en: { translation: en } } })
  expect(reasonLabel(t, 'breaker_open')).toBe('Circuit breaker open')
  expect(reasonLabel(t, 'http_503')).toBe('Answered HTTP 503')
  expect(reasonLabel(t, 'kafka_unknown_topic_or_part')).toBe('Rejected by Kafka: unknown topic or part')
  expect(reasonLabel(t, 'mongodb_11000')).toBe('Rejected by MongoDB: 11000')
  expect(reasonLabel(t, 'sql_22001')).toBe('Rejected by the database: 22001')
  expect(reasonLabel(t, 'pubsub_permission_denied')).toBe('Rejected by Pub/Sub: permission denied')
  expect(reasonLabel(t, 'redis_unavailable')).toBe('Redis temporarily unavailable')
  expect(reasonLabel(t, 'tides_too_low')).toBe('Rejected by tides: too low')
  expect(reasonLabel(t, 'unexpected')).toBe('unexpected')
})
