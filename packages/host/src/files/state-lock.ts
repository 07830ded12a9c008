/**
 * One daemon per state directory. The lock is a flock on an open file description that this process and its helper
 * share: it holds until both are gone, and the kernel frees it at once when they are, however they ended.
 */
import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync, writeFileSync, ftruncateSync } from "node:fs";
import { PlatformError } from "@fluxvm/core";
import { toFileError } from "./durable.ts";

const EXIT_TAKEN_BY_OTHER = 75;

export interface StateLock {
  /** For `startHostHelper({ lockFd })`. */
  readonly fd: number;
  /** Lets go of this process's share. */
  release(): void;
}

export interface StateLockOptions {
  readonly binaryPath: string;
  /** A file, made if missing and never removed. It holds the pid of the last who took it, for people. */
  readonly path: string;
}

/** @throws PlatformError `STATE_DIR_LOCKED` at once when another daemon has it. */
export async function acquireStateLock(options: StateLockOptions): Promise<StateLock> {
  const fd = openLockFile(options.path);
  try {
    const code = await runLocker(options.binaryPath, fd);
    if (code === EXIT_TAKEN_BY_OTHER) throw lockedByOther(options.path);
    if (code !== 0) throw new PlatformError("STATE_DIR_UNUSABLE", `Cannot lock ${options.path}`, { details: { exitCode: code } });
    noteOwner(fd);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  let released = false;
  const release = (): void => {
    if (!released) closeSync(fd);
    released = true;
  };
  return { fd, release };
}

/** For people only: a full disk must not keep a daemon from its VMs. */
function noteOwner(fd: number): void {
  try {
    ftruncateSync(fd);
    writeFileSync(fd, `${process.pid}\n`);
  } catch {
    // the lock is held all the same
  }
}

function openLockFile(path: string): number {
  try {
    return openSync(path, "a+", 0o600);
  } catch (error) {
    throw toFileError(error, `open lock file ${path}`);
  }
}

function lockedByOther(path: string): PlatformError {
  const pid = readFileSync(path, "utf8").trim();
  const who = pid === "" ? "Another daemon" : `Another daemon (pid ${pid})`;
  return new PlatformError("STATE_DIR_LOCKED", `${who} uses this state directory`, { details: { path, pid } });
}

async function runLocker(binaryPath: string, fd: number): Promise<number | null> {
  return await new Promise((resolve, reject) => {
    const child = spawn(binaryPath, ["lock"], { stdio: ["ignore", "ignore", "ignore", fd], env: {} });
    child.once("error", (cause) =>
      reject(new PlatformError("HOST_HELPER_UNAVAILABLE", `Cannot start the host helper ${binaryPath}`, { cause })),
    );
    child.once("exit", resolve);
  });
}
