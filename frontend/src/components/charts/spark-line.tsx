const width = 96
const height = 24

interface Props {
  /** What the line says, in words. */
  label: string
  values: number[]
  /** Drawn over them in the colour of failure, on the same scale. */
  failed: number[]
}

/** The course of a number in the space of a word. */
export function SparkLine({ label, values, failed }: Props) {
  const most = Math.max(1, ...values, ...failed)
  const points = (numbers: number[]) =>
    numbers.map((value, index) => `${(index / Math.max(numbers.length - 1, 1)) * width},${height - 1 - (value / most) * (height - 2)}`).join(' ')
  return (
    <svg role="img" aria-label={label} width={width} height={height} viewBox={`0 0 ${width} ${height}`} fill="none" strokeWidth={1.5}>
      <title>{label}</title>
      <polyline points={points(values)} stroke="var(--chart-delivered)" />
      {failed.some(Boolean) && <polyline points={points(failed)} stroke="var(--chart-failed)" />}
    </svg>
  )
}
