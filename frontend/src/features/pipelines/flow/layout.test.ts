import { expect, test } from 'vitest'

import { branchIndent, layoutOf, placeAt, stepPitch } from './layout'
import { partsOf } from './parts'

const parts = partsOf({ transforms: [{ type: 'set' }, { type: 'set' }], outputs: [{ name: 'a' }, { name: 'b' }] })

test('messages flow from left to right, and nothing lies on anything else', () => {
  const { boxes } = layoutOf(parts, true, false)
  const x = (path: string) => boxes.get(path)?.x ?? NaN
  expect(x('input')).toBeLessThan(x('transforms'))
  expect(x('transforms')).toBeLessThan(x('outputs.0'))
  const all = [...boxes].filter(([path]) => path !== 'transforms')
  for (const [one, a] of all) {
    for (const [other, b] of all) {
      const apart = a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y
      expect(one === other || apart, `${one} and ${other}`).toBe(true)
    }
  }
})

test('where there is little room, all stands in one column, and several outputs as branches of it', () => {
  const { boxes, width, isBranched } = layoutOf(parts, true, true)
  expect(isBranched).toBe(true)
  expect(width).toBe((boxes.get('input')?.width ?? NaN) + branchIndent)
  expect(boxes.get('outputs.0')?.x).toBe(branchIndent)
  expect(boxes.get('outputs.1')?.y).toBeGreaterThan(boxes.get('outputs.0')?.y ?? NaN)
  const single = layoutOf(partsOf({ outputs: [{ name: 'a' }] }), false, true)
  expect(single.isBranched).toBe(false)
  expect(single.width).toBe(boxes.get('input')?.width)
})

test('a step is dropped at the nearest place of the chain', () => {
  const { boxes } = layoutOf(parts, true, false)
  const top = (boxes.get('transforms.1')?.y ?? 0) - (boxes.get('transforms')?.y ?? 0)
  expect(placeAt(top, 2)).toBe(1)
  expect(placeAt(top - 0.6 * stepPitch, 2)).toBe(0)
  expect(placeAt(9999, 2)).toBe(1)
})
