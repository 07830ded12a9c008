/** Where the file system can share blocks, a local disk is imported without copying it. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "node:test";
import { runTool } from "@fluxvm/host";
import { requireRoot, requireTool } from "@fluxvm/host/testing";
import { createImageWorld } from "../testing/index.ts";

const SCRIPT = `set -e
truncate -s 400M "$1/xfs.img"
mkfs.xfs -q -m reflink=1 "$1/xfs.img"
mount -o loop "$1/xfs.img" "$1/mount"
mkdir "$1/mount/state"
head -c 20000123 "$1/random" > "$1/mount/disk"
"$2" "$3" < "$1/order.json"
cmp -n 20000123 "$1/mount/disk" "$1"/mount/state/images/*/disk.raw
filefrag -v "$1"/mount/state/images/*/disk.raw | grep -c shared
stat -c %s "$1"/mount/state/images/*/disk.raw
umount "$1/mount"`;

test("a disk on a file system with reflinks shares its blocks", async (t) => {
  if (!requireRoot(t) || !requireTool(t, "mkfs.xfs") || !requireTool(t, "filefrag")) return;
  const w = await createImageWorld(t);
  await mkdir(join(w.directory, "mount"));
  await writeFile(join(w.directory, "random"), randomBytes(20_000_123));
  const mount = join(w.directory, "mount");
  await writeFile(join(w.directory, "order.json"), JSON.stringify({ stateDir: join(mount, "state"), source: join(mount, "disk") }));
  const script = join(import.meta.dirname, "../testing/import-process.ts");
  const { stdout } = await runTool({
    command: "unshare",
    args: ["--mount", "sh", "-c", SCRIPT, "sh", w.directory, process.execPath, script],
    timeoutMs: 120_000,
    signal: w.signal,
  });
  const lines = stdout.trim().split("\n");
  assert.match(lines[1] ?? "", /"state":"ready"/);
  assert.ok(Number(lines[2]) >= 1, "extents are shared");
  assert.equal(Number(lines[3]) % 512, 0);
});
