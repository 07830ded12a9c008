import assert from "node:assert/strict";
import { chmodSync, lstatSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { createDisks } from "./disks.ts";

const OWNER = { uid: process.getuid?.() === 0 ? 2_000_001 : (process.getuid?.() ?? 0), gid: process.getgid?.() ?? 0 };
const call = { signal: AbortSignal.timeout(10_000) };

function createWorld(t: TestContext): {
  readonly directory: string;
  readonly path: string;
  readonly disks: ReturnType<typeof createDisks>;
} {
  const directory = mkdtempSync(join(tmpdir(), "fluxvm-disks-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const ovmfVars = join(directory, "template.fd");
  writeFileSync(ovmfVars, "template");
  const refuse = (): never => assert.fail("not asked for images here");
  const disks = createDisks({ images: { resolve: refuse, createOverlay: refuse }, ovmfVars });
  return { directory, path: join(directory, "firmware-vars.fd"), disks };
}

test("UEFI's variables are made once, kept, and belong to the VM alone", async (t) => {
  const { path, disks } = createWorld(t);
  await disks.ensureFirmwareVars({ path, owner: OWNER }, call);
  assert.equal(readFileSync(path, "utf8"), "template");
  assert.deepEqual([statSync(path).uid, statSync(path).mode & 0o777], [OWNER.uid, 0o600]);
  writeFileSync(path, "changed by the guest");
  await disks.ensureFirmwareVars({ path, owner: OWNER }, call);
  assert.equal(readFileSync(path, "utf8"), "changed by the guest");
});

test("a link that a broken-out VMM left in their place gives away nothing", async (t) => {
  const { directory, path, disks } = createWorld(t);
  const secret = join(directory, "secret");
  writeFileSync(secret, "token");
  chmodSync(secret, 0o640);
  const before = statSync(secret);
  for (const put of [() => symlinkSync(secret, path), () => symlinkSync(join(directory, "nowhere"), path), () => mkdirSync(path)]) {
    rmSync(path, { recursive: true, force: true });
    put();
    await disks.ensureFirmwareVars({ path, owner: OWNER }, call);
    assert.ok(lstatSync(path).isFile());
    assert.equal(readFileSync(path, "utf8"), "template");
  }
  const after = statSync(secret);
  assert.deepEqual([after.uid, after.mode, readFileSync(secret, "utf8")], [before.uid, before.mode, "token"]);
});
