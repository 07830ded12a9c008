/**
 * What the daemon itself keeps in its state directory, beside the store: the lock, the token, and the instance id that
 * names everything it makes on the host. All of it is 0700 or 0600 and belongs to the daemon's user.
 */
import { chmodSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { isId, newId, PlatformError, type InstanceId, type Random } from "@fluxvm/core";
import { writeFileDurable } from "@fluxvm/host";

const TOKEN_FORM = /^[\u0021-\u007e]{20,512}$/;
const TOKEN_BYTES = 32;

/** Makes the directory if need be. @throws PlatformError `STATE_DIR_UNUSABLE` */
export function ensureDirectory(path: string, mode: number): void {
  try {
    mkdirSync(path, { recursive: true, mode });
    if (!statSync(path).isDirectory()) throw new PlatformError("STATE_DIR_UNUSABLE", `Cannot use ${path}: it is no directory`);
  } catch (cause) {
    throw unusable(path, cause);
  }
}

/** The state directory, for nobody but the daemon's user. */
export function ensureStateDirectory(path: string): void {
  ensureDirectory(path, 0o700);
  try {
    chmodSync(path, 0o700);
  } catch (cause) {
    throw unusable(path, cause);
  }
}

/** The name of this state directory, made once. @throws PlatformError `STATE_DIR_UNUSABLE` when the file is not one of ours. */
export async function ensureInstanceId(stateDir: string, random: Random): Promise<InstanceId> {
  const path = join(stateDir, "instance");
  const stored = readIfThere(path)?.trim();
  if (stored === undefined) {
    const made = newId("inst", random);
    await writeFileDurable(path, `${made}\n`, { mode: 0o600 });
    return made;
  }
  if (!isId("inst", stored)) {
    throw new PlatformError(
      "STATE_DIR_UNUSABLE",
      `Cannot use ${stateDir}: its file "instance" is damaged. What it named is on the host; restore the file from a backup`,
    );
  }
  return stored;
}

/** The bearer token of the TCP listener, made at first start. @throws PlatformError `STATE_DIR_UNUSABLE` */
export async function ensureToken(stateDir: string, random: Random): Promise<string> {
  const path = join(stateDir, "token");
  const stored = readIfThere(path)?.trim();
  if (stored === undefined) {
    const made = Buffer.from(random.bytes(TOKEN_BYTES)).toString("base64url");
    await writeFileDurable(path, `${made}\n`, { mode: 0o600 });
    return made;
  }
  if (!TOKEN_FORM.test(stored)) {
    throw new PlatformError(
      "STATE_DIR_UNUSABLE",
      `The token file ${path} holds no token of 20 or more visible characters; remove it and a new one is made`,
    );
  }
  chmodSync(path, 0o600); // however it was put there, others must not read it
  return stored;
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOENT") return undefined; // node:fs throws these
    throw unusable(path, cause);
  }
}

function unusable(path: string, cause: unknown): PlatformError {
  if (cause instanceof PlatformError) return cause;
  const { code } = cause as NodeJS.ErrnoException; // node:fs throws these
  return new PlatformError("STATE_DIR_UNUSABLE", `Cannot use ${path}: ${code ?? String(cause)}`, { cause });
}
