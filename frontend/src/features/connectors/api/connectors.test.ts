import { expect, test } from 'vitest'

import { pageOf } from './connectors'

test('what uses a connector has a page, unless it is only still to be removed', () => {
  const named = { id: '7', name: 'ERP' }
  expect(pageOf({ ...named, kind: 'pipeline' })).toBe('/pipelines/7')
  expect(pageOf({ ...named, kind: 'connector' })).toBe('/connectors/7/edit')
  expect(pageOf({ ...named, kind: 'alert_rule' })).toBe('/alerts')
  expect(pageOf({ ...named, kind: 'registration' })).toBeUndefined()
})
