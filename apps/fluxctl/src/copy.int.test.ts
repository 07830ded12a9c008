import assert from "node:assert/strict";
import { chmod, lstat, mkdir, readdir, readFile, readlink, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { createWorld } from "./testing/fake-world.ts";

test("a file goes in and comes out byte for byte, with its mode", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => i % 251));
  await writeFile(join(world.directory, "in"), bytes);
  await chmod(join(world.directory, "in"), 0o750);
  const pushed = await world.run("cp", join(world.directory, "in"), "a:/tmp/x");
  assert.deepEqual([pushed.code, pushed.stdout], [0, "a:/tmp/x: 1 file, 293 KiB\n"]);
  assert.equal((await world.run("cp", "a:/tmp/x", join(world.directory, "out"))).code, 0);
  assert.ok((await readFile(join(world.directory, "out"))).equals(bytes));
  assert.equal((await stat(join(world.directory, "out"))).mode & 0o777, 0o750);
});

test("a directory that exists, or a slash, takes the source in under its own name", async (t) => {
  const world = await createWorld(t);
  const { files } = world.daemon.host.addVm("a");
  await writeFile(join(world.directory, "f"), "x");
  await world.run("cp", join(world.directory, "f"), "a:/tmp");
  assert.equal(files.read("/tmp/f").toString(), "x");
  await mkdir(join(world.directory, "d"));
  await world.run("cp", "a:/etc/hostname", join(world.directory, "d"));
  assert.equal(await readFile(join(world.directory, "d", "hostname"), "utf8"), "fake\n");
  await world.run("cp", `${join(world.directory, "d")}/`, "a:/tmp/");
  assert.equal(files.read("/tmp/d/hostname").toString(), "fake\n");
});

test("a tree goes in and comes out with its directories, modes and links", async (t) => {
  const world = await createWorld(t);
  const vm = world.daemon.host.addVm("a");
  const tree = join(world.directory, "tree");
  await mkdir(join(tree, "sub", "empty"), { recursive: true });
  await writeFile(join(tree, "sub", "ä b"), "deep");
  await writeFile(join(tree, "top"), "");
  await chmod(join(tree, "sub"), 0o711);
  await symlink("sub/ä b", join(tree, "link"));
  const pushed = await world.run("cp", tree, "a:/tmp/copy", "--output", "json");
  assert.deepEqual(JSON.parse(pushed.stdout), { target: "a:/tmp/copy", files: 2, bytes: 4, skipped: [] });
  const link = world.daemon.seen.find((request) => request.path.endsWith("/agent"));
  assert.deepEqual(JSON.parse(link?.body ?? ""), { command: ["ln", "-sfn", "--", "sub/ä b", "/tmp/copy/link"] });
  vm.files.link("/tmp/copy/link", "sub/ä b"); // the pretended guest runs no ln
  const back = join(world.directory, "back");
  assert.equal((await world.run("cp", "a:/tmp/copy", back)).code, 0);
  assert.deepEqual((await readdir(back, { recursive: true })).sort(), ["link", "sub", "sub/empty", "sub/ä b", "top"]);
  assert.equal(await readlink(join(back, "link")), "sub/ä b");
  assert.equal(await readFile(join(back, "link"), "utf8"), "deep");
  assert.equal((await lstat(join(back, "sub"))).mode & 0o777, 0o711);
});

test("a guest cannot make a copy write elsewhere", async (t) => {
  const world = await createWorld(t);
  const { files } = world.daemon.host.addVm("a");
  const outside = join(world.directory, "outside");
  await mkdir(outside);
  const back = join(world.directory, "back");

  // A name that climbs: whatever path the guest claims, only its last part counts.
  files.makeDirectory("/tmp/t", {});
  files.write("/tmp/t/..%2f", Buffer.from("x"), {});
  assert.equal((await world.run("cp", "a:/tmp/t", back)).code, 0);
  assert.deepEqual(await readdir(back), ["..%2f"]);

  // A link that lies in the way of a directory of the same name.
  await symlink(outside, join(back, "sub"));
  files.makeDirectory("/tmp/back/sub", { parents: true });
  files.write("/tmp/back/sub/planted", Buffer.from("x"), {});
  const blocked = await world.run("cp", "a:/tmp/back", world.directory);
  assert.equal(blocked.code, 4);
  assert.match(blocked.stderr, /it is there and is no directory/);
  assert.deepEqual(await readdir(outside), []);
});

test("standard input and output are files too", async (t) => {
  const world = await createWorld(t);
  const { files } = world.daemon.host.addVm("a");
  assert.equal((await world.runWith({ stdin: "from a pipe" }, "cp", "-", "a:/tmp/p")).code, 0);
  assert.equal(files.read("/tmp/p").toString(), "from a pipe");
  const { stdout, stderr } = await world.run("cp", "a:/tmp/p", "-");
  assert.deepEqual([stdout, stderr], ["from a pipe", ""]);
});

test("what is missing on either side is named, and nothing half-made is left", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  const here = await world.run("cp", join(world.directory, "no"), "a:/tmp/x");
  assert.equal(here.code, 3);
  assert.match(here.stderr, /there is no such file or directory \(LOCAL_FILE_NOT_FOUND\)/);
  assert.equal((await world.run("cp", "a:/no", join(world.directory, "x"))).code, 3);
  assert.equal((await world.run("cp", "a:/etc/hostname", join(world.directory, "no", "x"))).code, 3);
  await writeFile(join(world.directory, "f"), "x");
  assert.equal((await world.run("cp", join(world.directory, "f"), "nope:/tmp/x")).code, 3);
  assert.deepEqual((await readdir(world.directory)).sort(), ["f", "s.sock"]);
});
