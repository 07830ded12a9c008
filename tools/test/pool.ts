/** Runs `work` over `items`, at most `width` at a time; results keep the order of the items. */
export async function mapBounded<T, R>(items: readonly T[], width: number, work: (item: T, index: number) => Promise<R>): Promise<R[]> {
  const results = new Map<number, R>();
  const queue = [...items.entries()];
  const drain = async (): Promise<void> => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) results.set(next[0], await work(next[1], next[0]));
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, drain));
  return [...results.entries()].sort((a, b) => a[0] - b[0]).map(([, result]) => result);
}
