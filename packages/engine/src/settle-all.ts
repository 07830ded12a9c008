/**
 * Runs pieces of work side by side and comes back when all are over, also when one fails: whoever releases what they
 * made must not race with those still at it. @throws what the first in order to fail threw.
 */
export async function settleAll<T extends readonly unknown[]>(works: { readonly [K in keyof T]: Promise<T[K]> }): Promise<T> {
  const results = await Promise.allSettled(works);
  const failed = results.find((result) => result.status === "rejected");
  if (failed !== undefined) throw failed.reason;
  return results.map((result) => (result.status === "fulfilled" ? result.value : undefined)) as unknown as T; // all are fulfilled here, in the order given
}
