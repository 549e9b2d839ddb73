export type SortKey = string | number | null

export interface Sorting {
  name: string
  descends: boolean
}

const collator = new Intl.Collator()

/** In the order of a key; rows without one are last, whatever the direction. Equal ones keep their order. */
export function sorted<Row>(rows: Row[], keyOf: (row: Row) => SortKey, descends: boolean): Row[] {
  const direction = descends ? -1 : 1
  return [...rows].sort((a, b) => {
    const [left, right] = [keyOf(a), keyOf(b)]
    if (left === null || right === null) return (left === null ? 1 : 0) - (right === null ? 1 : 0)
    if (typeof left === 'string' && typeof right === 'string') return direction * collator.compare(left, right)
    return direction * (Number(left) - Number(right))
  })
}

/** As it stands in the address: the column's name, after a minus where the largest come first. */
export function sortingFrom(text: string | null): Sorting | null {
  if (!text) return null
  return text.startsWith('-') ? { name: text.slice(1), descends: true } : { name: text, descends: false }
}

export function textOf({ name, descends }: Sorting): string {
  return descends ? `-${name}` : name
}
