/** Imports that are killed, or run out of disk, in a process of their own: nothing half-made may stay. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import test, { type TestContext } from "node:test";
import type { ImageView } from "@fluxvm/contracts";
import { spawnTool, systemClock, type RunningTool } from "@fluxvm/host";
import { requireRoot, requireTool } from "@fluxvm/host/testing";
import { openSqliteStore } from "@fluxvm/store";
import { createNullLogger } from "@fluxvm/telemetry";
import { createImageWorld, createLayout, type ImageWorld } from "./testing/index.ts";

const SCRIPT = join(import.meta.dirname, "testing", "import-process.ts");
const DEADLINE_MS = 30_000;

function startImport(w: ImageWorld, order: Readonly<Record<string, unknown>>, around: readonly string[] = []): RunningTool {
  const [command = process.execPath, ...args] = [...around, process.execPath, SCRIPT];
  const tool = spawnTool({ command, args, timeoutMs: 240_000, signal: w.signal });
  tool.done.catch(() => undefined);
  tool.stdin.end(JSON.stringify(order));
  return tool;
}

/** Command lines of processes that mention the directory, ours apart. */
async function findProcesses(mention: string): Promise<string[]> {
  const found: string[] = [];
  for (const pid of await readdir("/proc")) {
    if (!/^\d+$/.test(pid) || Number(pid) === process.pid) continue;
    const command = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
    if (command.includes(mention)) found.push(command.replaceAll("\0", " "));
  }
  return found;
}

async function assertNobodyWorksOn(directory: string): Promise<void> {
  const deadline = systemClock.bootMs() + DEADLINE_MS;
  for (;;) {
    const found = await findProcesses(directory);
    if (found.length === 0) return;
    if (systemClock.bootMs() > deadline) assert.fail(`still there: ${found.join("\n")}`);
    await systemClock.sleep(50);
  }
}

/** Kills an import some time after its record was durable and starts the service again over what is left. */
async function killAndRecover(
  t: TestContext,
  options: { readonly source: string; readonly afterMs: number; readonly w: ImageWorld; readonly name: string },
): Promise<void> {
  const { source, afterMs, w, name } = options;
  const stateDir = join(w.directory, name);
  await mkdir(stateDir);
  const tool = startImport(w, { stateDir, source });
  const lines = createInterface({ input: tool.stdout })[Symbol.asyncIterator]();
  assert.equal((await lines.next()).value, "importing");
  await systemClock.sleep(afterMs);
  tool.kill();
  await tool.done.catch(() => undefined);
  await assertNobodyWorksOn(stateDir);
  const store = await openSqliteStore({ directory: stateDir, logger: createNullLogger() });
  t.after(async () => await store.close());
  const after = await createImageWorld(t, { stateDir, store });
  const [image] = after.images.list();
  const left = (await after.listState()).filter((path) => !path.startsWith("state.db"));
  if (image?.state === "ready") {
    assert.equal(left.filter((path) => path.endsWith("meta.json")).length, 1);
    return;
  }
  assert.equal(image?.state, "failed");
  assert.equal(image.error?.code, "REQUEST_CANCELLED");
  assert.deepEqual(left, []);
  const again = await after.import({ source });
  assert.equal(again.state, "ready", again.error?.message ?? "no error");
}

test("a killed daemon leaves no half-made image and no process, wherever it was", async (t) => {
  if (!requireRoot(t)) return;
  const w = await createImageWorld(t);
  const layout = await createLayout(join(w.directory, "layout"));
  const items = Array.from({ length: 400 }, (_, index) => ({ name: `d${index % 20}/f${index}`, content: randomBytes(100_000) }));
  await layout.image({ layers: [{ items, compression: "none" }, { items: items.slice(0, 100) }] });
  for (const [index, afterMs] of [0, 20, 60, 120, 250, 400].entries()) {
    await killAndRecover(t, { source: `oci:${layout.directory}`, afterMs, w, name: `kill-${index}` });
  }
});

test("a killed daemon's bootstrap and pull end with it", async (t) => {
  if (!requireRoot(t) || !requireTool(t, "mmdebstrap")) return;
  const w = await createImageWorld(t);
  for (const [index, afterMs] of [300, 4000].entries()) {
    const stateDir = join(w.directory, `bootstrap-${index}`);
    await mkdir(stateDir);
    const tool = startImport(w, { stateDir, source: "debian:bookworm" });
    const lines = createInterface({ input: tool.stdout })[Symbol.asyncIterator]();
    assert.equal((await lines.next()).value, "importing");
    await systemClock.sleep(afterMs);
    tool.kill();
    await tool.done.catch(() => undefined);
    await assertNobodyWorksOn(stateDir);
    const after = await createImageWorld(t, { stateDir });
    assert.deepEqual(
      (await after.listState()).filter((path) => !path.startsWith("state.db")),
      [],
    );
  }
});

test("a full disk is called that, whichever step fills it", async (t) => {
  if (!requireRoot(t)) return;
  const w = await createImageWorld(t);
  const layout = await createLayout(join(w.directory, "layout"));
  await layout.image({
    layers: [{ items: Array.from({ length: 30 }, (_, index) => ({ name: `f${index}`, content: randomBytes(1 << 20) })) }],
  });
  const disk = join(w.directory, "disk");
  await writeFile(disk, randomBytes(30 << 20));
  const mount = join(w.directory, "small");
  await mkdir(mount);
  // A file system of the size given, seen by the import alone; afterwards what is left on it is listed.
  const script = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && "$@"; find "$0" -mindepth 1 ! -type d >&2';
  const cases = [
    // Too small for the unpacked files; for the files but not for the disk too; for a copied disk.
    ["20m", `oci:${layout.directory}`],
    ["40m", `oci:${layout.directory}`],
    ["20m", disk],
  ] as const;
  for (const [index, [size, source]] of cases.entries()) {
    const tool = startImport(w, { stateDir: mount, storeDir: join(w.directory, `store-${index}`), source }, [
      "unshare",
      "--mount",
      "sh",
      "-c",
      script,
      mount,
      size,
      mount,
    ]);
    const lines: string[] = [];
    for await (const line of createInterface({ input: tool.stdout })) lines.push(line);
    const { stderr } = await tool.done;
    const image = JSON.parse(lines[1] ?? "{}") as ImageView; // printed by import-process.ts
    assert.equal(image.error?.code, "HOST_OUT_OF_SPACE", `${size} ${source}: ${lines.join(" ")} ${stderr}`);
    assert.equal(stderr.trim(), "", "nothing is left on it");
  }
});
