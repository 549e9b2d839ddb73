import { sentence } from '@/lib/api/problem'

/** How far something that is done to many has come. */
export interface Progress<Item> {
  done: number
  refused: { item: Item; why: string }[]
}

/** Does it to each, one after the other; what is refused stops none of the others. */
export async function inTurn<Item>(
  items: Item[],
  act: (item: Item) => Promise<unknown>,
  onProgress: (progress: Progress<Item>) => void,
  isStopped: () => boolean,
): Promise<Progress<Item>> {
  let progress: Progress<Item> = { done: 0, refused: [] }
  onProgress(progress)
  for (const item of items) {
    if (isStopped()) break
    try {
      await act(item)
      progress = { ...progress, done: progress.done + 1 }
    } catch (error) {
      progress = { ...progress, refused: [...progress.refused, { item, why: sentence(error) }] }
    }
    onProgress(progress)
  }
  return progress
}
