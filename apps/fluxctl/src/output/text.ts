/** Text that came from elsewhere, made safe for a terminal: no control characters, so no escape sequences. */

export function sanitise(text: string): string {
  return text.replaceAll(/\p{Cc}|[\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu, "?");
}

/** How long ago or how far ahead, in one unit: `3s`, `5m`, `2h`, `4d`. */
export function formatAge(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)}h`;
  return `${Math.round(seconds / 86_400)}d`;
}

export function formatPairs(pairs: Readonly<Record<string, string>>): string {
  return Object.entries(pairs)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
}
