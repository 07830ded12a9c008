/** Gates: skip a test with a reason where the host cannot run it. Use: `if (!requireRoot(t)) return;`. */
import { chmodSync, constants, copyFileSync, existsSync, statSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";

export function requireRoot(t: TestContext): boolean {
  if (process.getuid?.() === 0) return true;
  t.skip("needs root");
  return false;
}

/** A KVM that runs ordinary guests, as the probe found; pass its status. */
export function requireKvm(t: TestContext, kvm: { readonly status: string; readonly detail: string }): boolean {
  if (kvm.status === "works") return true;
  t.skip(`needs KVM: ${kvm.detail}`);
  return false;
}

/** /dev/kvm there at all: enough for small bare-metal guests even where ordinary ones never boot. */
export function requireKvmDevice(t: TestContext): boolean {
  if (existsSync("/dev/kvm")) return true;
  t.skip("needs /dev/kvm");
  return false;
}

export function requireVsock(t: TestContext): boolean {
  if (existsSync("/dev/vhost-vsock")) return true;
  t.skip("needs vhost-vsock");
  return false;
}

/** A program in the system's folders. */
export function requireTool(t: TestContext, name: string): boolean {
  if (["/usr/sbin", "/usr/bin", "/sbin", "/bin"].some((dir) => existsSync(join(dir, name)))) return true;
  t.skip(`needs ${name}`);
  return false;
}

/** A binary of the Cargo workspace as it was built last, release or debug. Throws when there is none. */
export function findNativeBinary(name: string): string {
  const target = join(import.meta.dirname, "../../../../native/target");
  const folders = ["release", "debug", "x86_64-unknown-linux-gnu/release", "x86_64-unknown-linux-gnu/debug"];
  const found = folders.map((folder) => join(target, folder, name)).filter((path) => existsSync(path));
  const newest = found.toSorted((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)[0];
  if (newest === undefined) throw new Error(`${name} is not built: run "cargo build --release" in native/`);
  return newest;
}

/** A copy of this Node in `directory`, for another user to run: a folder above this tree may be closed to that one. */
export function copyNode(directory: string): string {
  const path = join(directory, "node");
  copyFileSync(process.execPath, path, constants.COPYFILE_FICLONE);
  chmodSync(path, 0o755);
  return path;
}
