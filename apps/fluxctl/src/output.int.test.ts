/** What commands print, in every format, compared with what is written down. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { createWorld, type World } from "./testing/fake-world.ts";

const GOLDEN = `${import.meta.dirname}/../golden/output`;

function fill(world: World): void {
  const { host } = world.daemon;
  host.addImage("debian:bookworm", { digest: "sha256:abc" });
  host.addImage("broken", { state: "failed", error: { code: "IMAGE_TRUNCATED", message: "The file ends early" } });
  host.addKernel("6.1.0-test");
  host.addVm("web", {
    labels: { tier: "front", canary: "" },
    ttl_remaining_seconds: 5400,
    image: { id: "img-1", name: "debian:bookworm" },
  });
  host.addVm("db", {
    state: "stopped",
    reason: "guest_shutdown",
    message: "The guest shut down",
    memory_mib: 2048,
    agent: { enabled: true, state: "lost" },
  });
  host.addVm("evil", { labels: { x: "\u001b[31mred\u0007" }, network: { mode: "none" } });
}

const CALLS: readonly (readonly string[])[] = [
  ["vm", "list"],
  ["vm", "list", "--output", "name"],
  ["vm", "list", "--state", "stopped", "-o", "json"],
  ["vm", "get", "web"],
  ["vm", "get", "db", "--output", "json"],
  ["vm", "get", "evil"],
  ["vm", "create", "new", "--image", "debian:bookworm", "--memory", "1G", "--ttl", "90s", "--ready"],
  ["vm", "create", "newer", "--output", "name"],
  ["vm", "create", "web"],
  ["vm", "patch", "web", "--unlabel", "canary", "--label", "tier=back", "--no-ttl"],
  ["vm", "label", "web", "a=b", "tier-"],
  ["vm", "stop", "web", "evil", "--force"],
  ["vm", "start", "web", "--quiet"],
  ["vm", "wait", "web", "--for", "running"],
  ["vm", "wait", "nope", "--for", "gone"],
  ["vm", "wait", "web", "--for", "stopped", "--timeout", "1s"],
  ["vm", "extend", "web", "--ttl", "2h"],
  ["vm", "logs", "web", "--lines", "2"],
  ["logs", "web"],
  ["vm", "delete", "db", "nope"],
  ["vm", "delete", "nope", "--if-exists"],
  ["vm", "get", "nope"],
  ["vm", "get", "nope", "--output", "json"],
  ["image", "list"],
  ["image", "get", "debian:bookworm"],
  ["image", "get", "broken"],
  ["image", "import", "docker://alpine", "--name", "alpine"],
  ["image", "import", "docker://late", "--detach", "--output", "json"],
  ["image", "delete", "broken"],
  ["kernel", "list"],
  ["kernel", "get", "6.1.0-test"],
  ["kernel", "import", "debian:bookworm", "--quiet"],
  ["kernel", "delete", "6.1.0-test"],
  ["file", "ls", "web:/"],
  ["file", "ls", "web:/etc", "--output", "name"],
  ["file", "stat", "web:/etc/hostname"],
  ["file", "cat", "web:/etc/hostname"],
  ["file", "mkdir", "web:/tmp/a/b", "--parents", "--mode", "750"],
  ["file", "mv", "web:/tmp/a", "/tmp/c"],
  ["file", "rm", "web:/tmp/c"],
  ["file", "rm", "web:/tmp/c", "--recursive"],
  ["file", "cat", "web:/no"],
  ["host", "report"],
  ["host", "report", "--output", "json"],
  ["version"],
  ["execs", "web"],
];

test("commands print what is written down", async (t) => {
  const world = await createWorld(t);
  fill(world);
  let transcript = "";
  for (const words of CALLS) {
    const { code, stdout, stderr, environment } = await world.run(...words);
    transcript += `$ fluxctl ${words.join(" ")}\n${stdout}${stderr.replaceAll(/^(?=.)/gm, "! ")}${code === 0 ? "" : `= ${code}\n`}\n`;
    assert.equal(environment.leftovers, 0, words.join(" "));
  }
  t.assert.fileSnapshot(world.stable(transcript), join(GOLDEN, "transcript.txt"), { serializers: [String] });
});

test("completion scripts are as written down", async (t) => {
  const world = await createWorld(t);
  for (const shell of ["bash", "zsh", "fish"]) {
    const { stdout } = await world.run("completion", shell);
    t.assert.fileSnapshot(stdout, join(GOLDEN, `completion.${shell}`), { serializers: [String] });
  }
});

test("every option of vm create reaches the request", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addImage("i");
  await writeFile(join(world.directory, "key"), "ssh-ed25519 AAAA\n");
  await writeFile(join(world.directory, "spec.json"), JSON.stringify({ vcpus: 1, kernel_args: "quiet" }));
  const words = [
    "vm",
    "create",
    "full",
    "--spec",
    join(world.directory, "spec.json"),
    "--image",
    "i",
    "--vcpus",
    "2",
    "--memory",
    "512",
    "--disk",
    "10G",
  ];
  words.push(
    "--kernel",
    "k",
    "--forward",
    "8080:80",
    "--forward",
    "0.0.0.0:53:53/udp",
    "--allow-cidr",
    "10.0.0.0/8",
    "--ttl",
    "1h",
    "-l",
    "a=b=c",
  );
  words.push(
    "--accel",
    "tcg",
    "--backend",
    "auto",
    "-e",
    "K=v",
    "-w",
    "/w",
    "-u",
    "bob",
    "--firmware",
    "none",
    "--init",
    "agent",
    "--no-agent",
  );
  words.push(
    "--entrypoint",
    "/bin/x",
    "--hostname",
    "h",
    "--cloud-user",
    "bob",
    "--ssh-key",
    `@${join(world.directory, "key")}`,
    "--package",
    "git",
  );
  words.push("--runcmd", "echo hi", "--write-file", "/etc/x=content", "--", "arg", "--flag");
  assert.equal((await world.run(...words)).code, 0);
  assert.deepEqual(JSON.parse(world.daemon.seen.at(-1)?.body ?? ""), {
    name: "full",
    image: "i",
    vcpus: 2,
    memory_mib: 512,
    disk_size_gib: 10,
    kernel: "k",
    kernel_args: "quiet",
    network: {
      mode: "user",
      forwards: [
        { host_port: 8080, guest_port: 80 },
        { host_address: "0.0.0.0", host_port: 53, guest_port: 53, protocol: "udp" },
      ],
      allow_cidrs: ["10.0.0.0/8"],
    },
    ttl_seconds: 3600,
    labels: { a: "b=c" },
    accel: "tcg",
    backend: "auto",
    firmware: "none",
    init: "agent",
    agent: { enabled: false },
    workload: { entrypoint: ["/bin/x"], command: ["arg", "--flag"], env: { K: "v" }, user: "bob", working_dir: "/w" },
    cloud_init: {
      hostname: "h",
      user: "bob",
      ssh_authorized_keys: ["ssh-ed25519 AAAA"],
      packages: ["git"],
      runcmd: ["echo hi"],
      write_files: [{ path: "/etc/x", content: "content" }],
    },
  });
});

test("a token is taken from the environment or a file, and an unreachable daemon says what to do", async (t) => {
  const world = await createWorld(t);
  await writeFile(join(world.directory, "token"), "s3cret\n");
  await world.run("vm", "list", "--token-file", join(world.directory, "token"));
  assert.equal(world.daemon.seen.at(-1)?.headers.authorization, "Bearer s3cret");
  await world.runWith({ variables: { FLUXVM_TOKEN: "other" } }, "vm", "list");
  assert.equal(world.daemon.seen.at(-1)?.headers.authorization, "Bearer other");
  await world.daemon.stop();
  const { code, stderr } = await world.run("vm", "list");
  assert.equal(code, 6);
  assert.match(stderr, /Cannot reach the FluxVM daemon at unix:.*fluxctl serve.*\(DAEMON_UNREACHABLE\)/);
  await world.daemon.start();
});

test("a failed import ends with its own error", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.importError = "IMAGE_DIGEST_MISMATCH";
  const { code, stderr } = await world.run("image", "import", "docker://x");
  assert.equal(code, 4);
  assert.match(stderr, /Cannot import docker:\/\/x: The import came to nothing \(IMAGE_DIGEST_MISMATCH\)/);
});
