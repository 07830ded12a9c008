/** What a pretended guest can run. */
import type { FakeProcess, FakeProgram } from "./fake-exec.ts";

/** `numbers N`: the lines 0 to N-1 on stdout, every tenth also on stderr. */
async function numbers(process: FakeProcess): Promise<number> {
  const count = Number(process.command[1]);
  const step = 1000;
  for (let i = 0; i < count; i += step) {
    const lines = Array.from({ length: Math.min(step, count - i) }, (_, k) => `${i + k}\n`);
    await process.write("stdout", lines.join(""));
    await process.write("stderr", lines.filter((_, k) => k % 10 === 0).join(""));
  }
  return 0;
}

async function cat(process: FakeProcess): Promise<number> {
  for (let data = await process.read(); data !== undefined; data = await process.read()) await process.write("stdout", data);
  return 0;
}

/** Waits for a signal and ends by it. */
async function sleepUntilSignal(process: FakeProcess): Promise<{ signal: string; timed_out: boolean }> {
  return { signal: await process.nextSignal(), timed_out: false };
}

/** A shell that knows `exit N`, `size` and otherwise answers what it was told. */
async function shell(process: FakeProcess): Promise<number> {
  await process.write("stdout", "$ ");
  for (let data = await process.read(); data !== undefined; data = await process.read()) {
    const line = data.toString("utf8").trim();
    if (line.startsWith("exit")) return Number(line.slice(5));
    const answer = line === "size" ? `${process.size()?.rows}x${process.size()?.cols}` : `you said ${line}`;
    await process.write("stdout", `${answer}\r\n$ `);
  }
  return 0;
}

export const FAKE_PROGRAMS: Readonly<Record<string, FakeProgram>> = {
  numbers,
  cat,
  sleep: sleepUntilSignal,
  sh: shell,
  "/bin/sh": shell,
  true: async () => await Promise.resolve(0),
  false: async () => await Promise.resolve(1),
  async echo(process) {
    await process.write("stdout", `${process.command.slice(1).join(" ")}\n`);
    return 0;
  },
  async fail(process) {
    await process.write("stderr", "it went wrong\n");
    return Number(process.command[1] ?? 1);
  },
};
