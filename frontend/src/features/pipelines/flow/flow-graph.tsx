import '@xyflow/react/dist/style.css'

import { useComputedColorScheme, VisuallyHidden } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { Controls, Handle, Position, ReactFlow, ReactFlowProvider, useReactFlow, useStore, type Edge, type Node, type NodeProps } from '@xyflow/react'
import { useEffect, useMemo, useState, type KeyboardEvent, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'

import classes from './flow.module.css'
import { branchIndent, layoutOf, placeAt } from './layout'
import type { Part } from './parts'

type Tone = 'red' | 'yellow' | 'green'

/** What a node says: names, and the state of what it stands for. */
export interface Look {
  title: string
  detail: string
  icon?: ReactNode
  /** A short word or number at the right, and what it means. */
  state?: { text: ReactNode; label: string; tone?: Tone }
}

export interface FlowProps {
  parts: Part[]
  /** By the path of a part; `transforms` is the frame around the steps. */
  looks: Map<string, Look>
  /** Rates on the edges: into the chain, and to each part behind it. */
  rates?: Map<string, string>
  selected?: string
  onSelect: (path: string) => void
  /** With it, steps are moved by dragging or with Alt and the arrow keys. */
  onMove?: (from: number, to: number) => void
}

interface NodeData extends Record<string, unknown> {
  look: Look
  kind: Part['kind'] | 'frame'
  isSelected: boolean
  isVertical: boolean
  isBranch: boolean
  /** What flows to a branch, whose line has no room for it. */
  rate?: string
  onSelect: () => void
  onStep?: (by: number) => void
}

const narrowBelow = 620
const margin = 28
const tallestCanvas = 640
const shortestCanvas = 220

/** The way of messages through a pipeline: where they come from, each step, and where they go. */
export function FlowGraph(props: FlowProps) {
  return (
    <ReactFlowProvider>
      <Canvas {...props} />
    </ReactFlowProvider>
  )
}

function Canvas({ parts, looks, rates, selected, onSelect, onMove }: FlowProps) {
  const { t } = useTranslation()
  const scheme = useComputedColorScheme('light')
  const { ref, width } = useElementSize()
  const isVertical = width > 0 && width < narrowBelow
  const hasFrame = parts.some(({ kind }) => kind === 'step')
  const layout = useMemo(() => layoutOf(parts, hasFrame, isVertical), [parts, hasFrame, isVertical])
  // While a step is dragged, it is where the pointer is; then it is where the chain has it.
  const [dragged, setDragged] = useState<{ id: string; y: number } | null>(null)
  const height = isVertical ? layout.height + 2 * margin : Math.min(Math.max(layout.height + 2 * margin, shortestCanvas), tallestCanvas)
  const steps = parts.filter(({ kind }) => kind === 'step').length

  const nodes = useMemo<Node<NodeData>[]>(() => {
    const frame = hasFrame ? [{ path: 'transforms', kind: 'frame' as const }] : []
    return [...frame, ...parts].map(({ path, kind }) => {
      const box = layout.boxes.get(path) ?? { x: 0, y: 0, width: 0, height: 0 }
      const index = Number(path.split('.')[1])
      const isStep = kind === 'step'
      const isBranch = layout.isBranched && isEnd(kind)
      return {
        id: path,
        type: 'part',
        position: { x: box.x, y: dragged?.id === path ? dragged.y : box.y },
        width: box.width,
        height: box.height,
        draggable: isStep && onMove !== undefined,
        zIndex: kind === 'frame' ? 0 : dragged?.id === path ? 3 : 2,
        data: {
          look: looks.get(path) ?? { title: path, detail: '' },
          kind,
          isSelected: selected === path,
          isVertical,
          isBranch,
          rate: isBranch ? rates?.get(path) : undefined,
          onSelect: () => onSelect(path),
          onStep: isStep && onMove ? (by) => onMove(index, Math.min(Math.max(index + by, 0), steps - 1)) : undefined,
        },
      }
    })
  }, [parts, layout, looks, rates, selected, isVertical, hasFrame, dragged, onSelect, onMove, steps])
  const edges = useMemo(() => {
    const nameOf = (path: string) => looks.get(path)?.title ?? path
    return edgesOf(parts, hasFrame, layout.isBranched, rates).map((edge) => ({
      ...edge,
      ariaLabel: t('flow.edge', { source: nameOf(edge.source), target: nameOf(edge.target) }),
    }))
  }, [parts, looks, hasFrame, layout, rates, t])

  return (
    <div ref={ref} className={classes.canvas} style={{ height }} role="group" aria-label={t('flow.label')}>
      {width > 0 && (
        <ReactFlow
          nodes={nodes}
          edges={edges}
          nodeTypes={nodeTypes}
          colorMode={scheme}
          minZoom={0.4}
          maxZoom={1.5}
          fitView
          fitViewOptions={fitting}
          nodesConnectable={false}
          nodesFocusable={false}
          edgesFocusable={false}
          elementsSelectable={false}
          zoomOnScroll={false}
          zoomOnDoubleClick={false}
          preventScrolling={false}
          proOptions={{ hideAttribution: true }}
          onNodeDrag={(_, node) => setDragged({ id: node.id, y: node.position.y })}
          onNodeDragStop={(_, node) => {
            setDragged(null)
            const top = node.position.y - (layout.boxes.get('transforms')?.y ?? 0)
            const from = Number(node.id.split('.')[1])
            const to = placeAt(top, steps)
            if (from !== to) onMove?.(from, to)
          }}
        >
          {!isVertical && <Controls showInteractive={false} orientation="horizontal" />}
          <Fitted by={`${layout.width} ${layout.height}`} />
        </ReactFlow>
      )}
    </div>
  )
}

const fitting = { padding: 0.06, maxZoom: 1, minZoom: 0.6 }

/** Brings all into view again when there is more to see, or another room to see it in, as the library has measured it. */
function Fitted({ by }: { by: string }) {
  const { fitView } = useReactFlow()
  const room = useStore(({ width, height }) => `${width} ${height}`)
  useEffect(() => {
    void fitView(fitting)
  }, [by, room, fitView])
  return null
}

/** Whether messages go to it when they have passed the steps. */
const isEnd = (kind: NodeData['kind']) => kind !== 'step' && kind !== 'input' && kind !== 'frame'

function edgesOf(parts: Part[], hasFrame: boolean, isBranched: boolean, rates: Map<string, string> | undefined): Edge[] {
  const steps = parts.filter(({ kind }) => kind === 'step')
  const ends = parts.filter(({ kind }) => isEnd(kind))
  const chain = steps.slice(1).map(({ path }, index) => edge(steps[index]?.path ?? '', path))
  const source = hasFrame ? 'transforms' : 'input'
  return [
    ...(hasFrame ? [edge('input', 'transforms', rates?.get('transforms'))] : []),
    ...chain.map((link) => ({ ...link, type: 'straight', sourceHandle: 'down', targetHandle: 'up', zIndex: 1 })),
    ...ends.map(({ path }) => (isBranched ? branch(source, path) : edge(source, path, rates?.get(path)))),
  ]
}

function edge(source: string, target: string, label?: string): Edge {
  return { id: `${source} ${target}`, source, target, label, sourceHandle: 'out', targetHandle: 'in', focusable: false, labelBgPadding: [6, 3] }
}

function branch(source: string, target: string): Edge {
  return { ...edge(source, target), type: 'smoothstep', sourceHandle: 'branches' }
}

function PartNode({ data }: NodeProps<Node<NodeData>>) {
  const { look, kind, isSelected, isVertical, isBranch, rate, onSelect, onStep } = data
  const kindClass = kind === 'step' ? classes.step : kind === 'frame' ? classes.frame : ''
  const move = (event: KeyboardEvent) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key]
    if (!by || !event.altKey || !onStep) return
    event.preventDefault()
    onStep(by)
  }
  const head = (
    <span className={classes.line}>
      {look.icon}
      <span className={classes.title}>{look.title}</span>
      {kind === 'step' && <span className={classes.detail}>{look.detail}</span>}
      {look.state && (
        <span className={classes.state} data-tone={look.state.tone} title={look.state.label}>
          <span aria-hidden>{look.state.text}</span>
          <VisuallyHidden>{look.state.label}</VisuallyHidden>
        </span>
      )}
    </span>
  )
  return (
    <>
      <button
        type="button"
        className={`${classes.node} ${kindClass}`}
        data-tone={look.state?.tone}
        aria-pressed={isSelected}
        title={kind === 'step' ? look.detail : undefined}
        onClick={onSelect}
        onKeyDown={move}
      >
        {head}
        {kind !== 'step' && kind !== 'frame' && look.detail && (
          <span className={`${classes.line} ${classes.detail}`}>
            <span>{look.detail}</span>
            {rate && <span className={classes.state}>{rate}</span>}
          </span>
        )}
      </button>
      <Handle className={classes.handle} id="in" type="target" position={isVertical && !isBranch ? Position.Top : Position.Left} />
      <Handle className={classes.handle} id="out" type="source" position={isVertical ? Position.Bottom : Position.Right} />
      <Handle className={classes.handle} id="branches" type="source" position={Position.Bottom} style={{ left: branchIndent / 2 }} />
      {kind === 'step' && (
        <>
          <Handle className={classes.handle} id="up" type="target" position={Position.Top} />
          <Handle className={classes.handle} id="down" type="source" position={Position.Bottom} />
        </>
      )}
    </>
  )
}

const nodeTypes = { part: PartNode }
