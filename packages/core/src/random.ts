/** A source of random bytes, injected so that a simulation can replay a run. */
export interface Random {
  bytes(count: number): Uint8Array;
}

/** The operating system's generator. */
export const systemRandom: Random = {
  bytes(count) {
    return globalThis.crypto.getRandomValues(new Uint8Array(count));
  },
};

/** A small deterministic generator (mulberry32) for tests and simulation. Never for secrets. */
export function createSeededRandom(seed: number): Random {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
  return {
    bytes(count) {
      const out = new Uint8Array(count);
      for (let i = 0; i < count; i += 1) out[i] = next() & 255;
      return out;
    },
  };
}

/** Lower-case hexadecimal of `count` random bytes. */
export function randomHex(random: Random, count: number): string {
  return Buffer.from(random.bytes(count)).toString("hex");
}
