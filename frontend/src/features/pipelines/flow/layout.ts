import type { Part } from './parts'

export const nodeWidth = 230
export const nodeHeight = 76
export const stepHeight = 40
export const stepPitch = 50
const columnGap = 70
const rowGap = 18
/** Where there is little room, those that messages go to are set in by this, as branches of the line beside them. */
export const branchIndent = 40
const frameHead = 34
const framePadding = 12

interface Box {
  x: number
  y: number
  width: number
  height: number
}

export interface Layout {
  /** Where each part stands, by its path; the frame around the steps is `transforms`. */
  boxes: Map<string, Box>
  width: number
  height: number
  /** Whether those that messages go to stand below each other at a line that branches. */
  isBranched: boolean
}

/** Left to right in columns (input, steps, where messages go), or all below each other where there is little room. */
export function layoutOf(parts: Part[], hasFrame: boolean, isVertical: boolean): Layout {
  const steps = parts.filter(({ kind }) => kind === 'step')
  const ends = parts.filter(({ kind }) => kind !== 'step' && kind !== 'input')
  const frameHeight = frameHead + Math.max(steps.length, 1) * stepPitch + framePadding
  const heights = [nodeHeight, ...(hasFrame ? [frameHeight] : []), ends.length * (nodeHeight + rowGap) - rowGap]
  const tallest = Math.max(...heights)
  const boxes = new Map<string, Box>()
  let column = 0
  let below = 0
  const place = (height: number): { x: number; y: number } => {
    const at = isVertical ? { x: 0, y: below } : { x: column * (nodeWidth + columnGap), y: (tallest - height) / 2 }
    column += 1
    below += height + columnGap / 2
    return at
  }
  boxes.set('input', { ...place(nodeHeight), width: nodeWidth, height: nodeHeight })
  if (hasFrame) {
    const frame = place(frameHeight)
    boxes.set('transforms', { ...frame, width: nodeWidth, height: frameHeight })
    steps.forEach(({ path }, index) =>
      boxes.set(path, { x: frame.x + framePadding, y: frame.y + stepTop(index), width: nodeWidth - 2 * framePadding, height: stepHeight }),
    )
  }
  const isBranched = isVertical && ends.length > 1
  const first = place(heights.at(-1) ?? 0)
  const left = first.x + (isBranched ? branchIndent : 0)
  ends.forEach(({ path }, index) =>
    boxes.set(path, { x: left, y: first.y + index * (nodeHeight + rowGap), width: nodeWidth, height: nodeHeight }),
  )
  const all = [...boxes.values()]
  return {
    boxes,
    width: Math.max(...all.map(({ x, width }) => x + width)),
    height: Math.max(...all.map(({ y, height }) => y + height)),
    isBranched,
  }
}

/** The top of a step within the frame. */
function stepTop(index: number): number {
  return frameHead + index * stepPitch
}

/** The place in the chain at which a step is dropped, by its top within the frame. */
export function placeAt(top: number, steps: number): number {
  return Math.min(Math.max(Math.round((top - frameHead) / stepPitch), 0), steps - 1)
}
