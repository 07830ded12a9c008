/**
 * Serial consoles as QEMU's log writer leaves them: `console.log`, and before it `console.log.1` when it was rotated.
 * Following looks at the file a few times a second and goes over to its successor when it is rotated; it ends with the
 * signal, or when the VM's directory is gone.
 */
import { constants } from "node:fs";
import { open, stat, type FileHandle } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isPlatformError, type Clock } from "@fluxvm/core";
import { VM_FILES, type ConsoleLogs } from "@fluxvm/engine";
import { toFileError } from "@fluxvm/host";

const MAX_TAIL_BYTES = 1_048_576;
const CHUNK_BYTES = 65_536;
const LOOK_EVERY_MS = 150;

export function createConsoleLogs(options: { readonly stateDir: string; readonly clock: Clock }): ConsoleLogs {
  const pathOf = (vmId: string): string => join(options.stateDir, "vms", vmId, VM_FILES.console);
  return {
    async tail(vmId, lines, { signal }) {
      signal.throwIfAborted();
      const path = pathOf(vmId);
      const current = await readEnd(path, MAX_TAIL_BYTES);
      const before = current.length < MAX_TAIL_BYTES ? await readEnd(`${path}.1`, MAX_TAIL_BYTES - current.length) : Buffer.alloc(0);
      return lastLines(Buffer.concat([before, current]), lines);
    },
    follow: (vmId, lines, { signal }) => follow(pathOf(vmId), { lines, signal, clock: options.clock }),
  };
}

interface FollowOptions {
  readonly lines: number;
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

async function* follow(path: string, { lines, signal, clock }: FollowOptions): AsyncGenerator<Uint8Array, void, undefined> {
  let file = await openIfThere(path);
  try {
    let position = 0;
    if (file !== undefined) {
      const { size } = await file.stat();
      const current = await readAt(file, Math.max(0, size - MAX_TAIL_BYTES), Math.min(size, MAX_TAIL_BYTES));
      const before = current.length < MAX_TAIL_BYTES ? await readEnd(`${path}.1`, MAX_TAIL_BYTES - current.length) : Buffer.alloc(0);
      position = size;
      const tail = lastLines(Buffer.concat([before, current]), lines);
      if (tail.length > 0) yield tail;
    }
    for (;;) {
      const successor = await openSuccessor(path, file);
      for (;;) {
        const data = file === undefined ? Buffer.alloc(0) : await readAt(file, position, CHUNK_BYTES);
        if (data.length === 0) break;
        position += data.length;
        yield data;
      }
      if (successor !== undefined) {
        await file?.close();
        file = successor;
        position = 0;
        continue;
      }
      if ((await stat(dirname(path)).catch(() => undefined)) === undefined) return;
      await clock.sleep(LOOK_EVERY_MS, { signal });
    }
  } finally {
    await file?.close();
  }
}

/** The file at `path`, when it is not the one that is open. Opened before the old one is read to its end, so that nothing is missed. */
async function openSuccessor(path: string, current: FileHandle | undefined): Promise<FileHandle | undefined> {
  const next = await openIfThere(path);
  if (next === undefined || current === undefined) return next;
  const [a, b] = [await next.stat(), await current.stat()];
  if (a.ino !== b.ino || a.dev !== b.dev) return next;
  await next.close();
  return undefined;
}

/** The directory is the VMM's to write in. A link in the log's place, or a pipe, is as good as no log. */
async function openIfThere(path: string): Promise<FileHandle | undefined> {
  try {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    if ((await file.stat()).isFile()) return file;
    await file.close();
    return undefined;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException; // node:fs rejects with these
    if (code === "ENOENT" || code === "ELOOP" || code === "ENXIO") return undefined;
    throw isPlatformError(error) ? error : toFileError(error, "read a console log");
  }
}

async function readEnd(path: string, maxBytes: number): Promise<Buffer> {
  const file = await openIfThere(path);
  if (file === undefined) return Buffer.alloc(0);
  try {
    const { size } = await file.stat();
    return await readAt(file, Math.max(0, size - maxBytes), Math.min(size, maxBytes));
  } finally {
    await file.close();
  }
}

async function readAt(file: FileHandle, position: number, maxBytes: number): Promise<Buffer> {
  const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(maxBytes), 0, maxBytes, position);
  return buffer.subarray(0, bytesRead);
}

/** The last `count` lines; what follows the last newline counts as one. */
export function lastLines(bytes: Buffer, count: number): Buffer {
  if (count === 0) return Buffer.alloc(0);
  let start = bytes.length;
  let left = count;
  if (bytes[start - 1] === 10) start -= 1;
  while (start > 0) {
    if (bytes[start - 1] === 10) {
      left -= 1;
      if (left === 0) break;
    }
    start -= 1;
  }
  return bytes.subarray(start);
}
