/** The programs of a fake guest: enough of a shell to echo, copy, count, sleep, fail and be typed at. */
import type { FakeFiles } from "./fake-files.ts";

export interface FakeIo {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly isTty: boolean;
  readonly files: FakeFiles;
  write(stream: "stdout" | "stderr", data: Uint8Array): Promise<void>;
  /** The next input; `undefined` at its end. */
  read(): Promise<Uint8Array | undefined>;
  sleep(ms: number): Promise<void>;
}

export type FakeProgram = (io: FakeIo) => Promise<number>;

const PROGRAMS: Readonly<Record<string, FakeProgram>> = {
  true: async () => 0,
  false: async () => 1,
  echo: async (io) => await print(io, `${io.args.slice(1).join(" ")}\n`),
  env: async (io) =>
    await print(
      io,
      Object.entries(io.env)
        .map(([k, v]) => `${k}=${v}\n`)
        .join(""),
    ),
  pwd: async (io) => await print(io, `${io.cwd}\n`),
  seq: runSeq,
  sleep: async (io) => {
    await io.sleep(Number(io.args[1] ?? 0) * 1000);
    return 0;
  },
  cat: runCat,
  sh: runShell,
};

/** By the last part of the command's path, as if everything were in /bin. */
export function findProgram(command: readonly string[]): FakeProgram | undefined {
  const name = command[0]?.split("/").at(-1) ?? "";
  return Object.hasOwn(PROGRAMS, name) ? PROGRAMS[name] : undefined;
}

async function print(io: FakeIo, text: string): Promise<number> {
  await io.write("stdout", Buffer.from(io.isTty ? text.replaceAll("\n", "\r\n") : text));
  return 0;
}

async function runSeq(io: FakeIo): Promise<number> {
  const last = Number(io.args[1] ?? 0);
  let lines = "";
  for (let i = 1; i <= last; i += 1) {
    lines += `${i}\n`;
    if (lines.length < 32_768 && i < last) continue;
    await print(io, lines);
    lines = "";
  }
  return 0;
}

async function runCat(io: FakeIo): Promise<number> {
  for (const path of io.args.slice(1)) {
    const content = io.files.findContent(path);
    if (content === undefined) {
      await io.write("stderr", Buffer.from(`cat: ${path}: No such file or directory\n`));
      return 1;
    }
    await io.write("stdout", content);
  }
  if (io.args.length > 1) return 0;
  for (let data = await io.read(); data !== undefined; data = await io.read()) await io.write("stdout", data);
  return 0;
}

/** `sh -c SCRIPT`, or lines from standard input; commands are parted by `;` and newlines, `>&2` redirects. */
async function runShell(io: FakeIo): Promise<number> {
  const script = io.args[1] === "-c" ? (io.args[2] ?? "") : undefined;
  if (script !== undefined) return (await runLine(io, script)).code;
  if (io.isTty) await io.write("stdout", Buffer.from("$ "));
  let pending = "";
  let code = 0;
  for (let data = await io.read(); data !== undefined; data = await io.read()) {
    if (io.isTty) await io.write("stdout", Buffer.from(Buffer.from(data).toString("utf8").replaceAll("\r", "\r\n")));
    pending += Buffer.from(data).toString("utf8").replaceAll("\r", "\n");
    const lines = pending.split("\n");
    pending = lines.pop() ?? "";
    for (const line of lines) {
      const result = await runLine(io, line);
      code = result.code;
      if (result.isExit) return code;
      if (io.isTty) await io.write("stdout", Buffer.from("$ "));
    }
  }
  return code;
}

async function runLine(io: FakeIo, line: string): Promise<{ readonly code: number; readonly isExit: boolean }> {
  let code = 0;
  for (const text of line.split(/[;\n]/)) {
    const words = text
      .trim()
      .split(/\s+/)
      .filter((w) => w !== "");
    const args = words
      .filter((w) => w !== ">&2")
      .map((w) => w.replace(/^\$(\w+)$/, (_, name: string) => io.env[name] ?? "").replace(/^(['"])(.*)\1$/, "$2"));
    if (args[0] === undefined) continue;
    if (args[0] === "exit") return { code: Number(args[1] ?? code), isExit: true };
    const program = findProgram(args);
    const target = words.includes(">&2") ? "stderr" : undefined;
    const write: FakeIo["write"] = async (stream, data) => await io.write(target ?? stream, data);
    if (program === undefined) await io.write("stderr", Buffer.from(`sh: ${args[0]}: not found\n`));
    code = program === undefined ? 127 : await program({ ...io, args, write });
  }
  return { code, isExit: false };
}
