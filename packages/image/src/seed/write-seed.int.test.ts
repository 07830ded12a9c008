import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { promisify } from "node:util";
import { buildNoCloudFiles, type NoCloudInput } from "./no-cloud.ts";
import { writeNoCloudSeed } from "./write-seed.ts";

const run = promisify(execFile);
const NAMES = ["meta-data", "network-config", "user-data"] as const;

const INPUT: NoCloudInput = {
  instanceId: "vm-1",
  hostname: "web",
  network: { kind: "dhcp", mac: "52:54:00:12:34:56" },
  cloudInit: {
    user: "bob",
    ssh_authorized_keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ bob@example"],
    packages: ["htop"],
    runcmd: ["echo hi", ["touch", "/root/there"]],
    write_files: [
      { path: "/etc/big", content: "0123456789abcde\n".repeat(65_536), permissions: "0644" },
      { path: "/etc/odd", content: "a\u2028b\u0085c", owner: "bob:bob" },
      { path: "/etc/more", content: "x".repeat(1_000_000) },
    ],
  },
};

async function makeDirectory(t: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "fluxvm-seed-"));
  t.after(async () => await rm(directory, { recursive: true, force: true }));
  return directory;
}

/** Whether a program can be run; skips the test with the reason if not. */
async function requireProgram(t: TestContext, program: string): Promise<boolean> {
  try {
    await run(program, ["--version"]);
    return true;
  } catch {
    t.skip(`${program} is not installed`);
    return false;
  }
}

test("a seed of megabytes is read back by xorriso, name by name and byte for byte", async (t) => {
  if (!(await requireProgram(t, "xorriso"))) return;
  const directory = await makeDirectory(t);
  const path = join(directory, "seed.iso");
  const { bytes } = await writeNoCloudSeed(path, INPUT);
  assert.ok(bytes > 2_000_000);
  assert.deepEqual([(await stat(path)).size, (await stat(path)).mode & 0o777], [bytes, 0o600]);
  await run("xorriso", ["-osirrox", "on", "-indev", path, "-extract", "/", join(directory, "out")]);
  assert.deepEqual((await readdir(join(directory, "out"))).sort(), [...NAMES]);
  const expected = buildNoCloudFiles(INPUT);
  for (const name of NAMES) assert.equal(await readFile(join(directory, "out", name), "utf8"), expected[name]);
});

test("isoinfo finds the label and the names by Rock Ridge and by Joliet", async (t) => {
  if (!(await requireProgram(t, "isoinfo"))) return;
  const path = join(await makeDirectory(t), "seed.iso");
  await writeNoCloudSeed(path, INPUT);
  const { stdout: about } = await run("isoinfo", ["-d", "-i", path]);
  assert.match(about, /Volume id: cidata\n[^]*Joliet with UCS level 3 found[^]*Rock Ridge signatures version 1 found/);
  for (const flag of ["-R", "-J"]) {
    const { stdout } = await run("isoinfo", [flag, "-f", "-i", path]);
    assert.deepEqual(
      stdout.trim().replaceAll(";1", "").split("\n").sort(),
      NAMES.map((name) => `/${name}`),
      flag,
    );
  }
});

test("Linux mounts it and finds the label", async (t) => {
  const systems = await readFile("/proc/filesystems", "utf8");
  if (process.getuid?.() !== 0) return t.skip("mounting needs root");
  if (!systems.includes("iso9660")) return t.skip("this kernel has no isofs");
  const directory = await makeDirectory(t);
  const path = join(directory, "seed.iso");
  const target = join(directory, "mnt");
  await writeNoCloudSeed(path, INPUT);
  await mkdir(target);
  for (const options of ["ro,loop", "ro,loop,norock"]) {
    await run("mount", ["-t", "iso9660", "-o", options, path, target]);
    try {
      assert.deepEqual((await readdir(target)).sort(), [...NAMES], options);
      assert.equal(await readFile(join(target, "user-data"), "utf8"), buildNoCloudFiles(INPUT)["user-data"]);
    } finally {
      await run("umount", [target]);
    }
  }
});

test("blkid finds the label cloud-init looks for", async (t) => {
  if (!(await requireProgram(t, "blkid"))) return;
  const path = join(await makeDirectory(t), "seed.iso");
  await writeNoCloudSeed(path, INPUT);
  const { stdout } = await run("blkid", ["-p", "-o", "export", path]);
  assert.match(stdout, /^LABEL=cidata$/m);
  assert.match(stdout, /^TYPE=iso9660$/m);
});

test("cloud-init's own schema accepts the configuration", async (t) => {
  if (!(await requireProgram(t, "cloud-init"))) return;
  const path = join(await makeDirectory(t), "user-data");
  await writeFile(path, buildNoCloudFiles(INPUT)["user-data"]);
  const { stdout } = await run("cloud-init", ["schema", "--config-file", path]);
  assert.match(stdout, /Valid cloud-config/);
  await writeFile(path, '#cloud-config\n{"packages": 3}\n');
  await assert.rejects(run("cloud-init", ["schema", "--config-file", path]), /packages/);
});

test("writing replaces what is there, follows no link, and leaves nothing half-made", async (t) => {
  const directory = await makeDirectory(t);
  const path = join(directory, "seed.iso");
  const outside = join(directory, "outside");
  await writeFile(outside, "precious");
  await symlink(outside, `${path}.new`);
  await writeFile(path, "old");
  await writeNoCloudSeed(path, { instanceId: "vm-1", hostname: "web", mode: 0o640 });
  assert.equal(await readFile(outside, "utf8"), "precious");
  assert.deepEqual([(await stat(path)).mode & 0o777, (await stat(path)).size % 2048], [0o640, 0]);
  await assert.rejects(writeNoCloudSeed(join(directory, "no", "seed.iso"), INPUT));
  const taken = join(directory, "taken");
  await mkdir(join(taken, "x"), { recursive: true });
  await assert.rejects(writeNoCloudSeed(taken, INPUT));
  assert.deepEqual((await readdir(directory)).sort(), ["outside", "seed.iso", "taken"]);
});
