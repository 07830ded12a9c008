import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

/** Real tools that the script itself is made of; everything it installs with is a stand-in that takes notes. */
const BORROWED = [
  "sh",
  "git",
  "gcc",
  "date",
  "dirname",
  "basename",
  "sed",
  "sort",
  "head",
  "tail",
  "tr",
  "comm",
  "mkdir",
  "cat",
  "cut",
  "grep",
  "paste",
].concat(["sha256sum", "uname", "id", "ls", "rm"]);

interface World {
  readonly root: string;
  run(...args: string[]): { code: number | null; stdout: string; stderr: string };
  fake(name: string, script: string): void;
  notes(): string[];
}

function inWorld(work: (world: World) => void): void {
  const root = mkdtempSync(join(tmpdir(), "setup-"));
  const bin = join(root, "bin");
  const fake = (name: string, script: string): void => {
    rmSync(join(bin, name), { force: true });
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(bin, name), 0o755);
  };
  try {
    for (const folder of ["bin", "tools/setup", "native/guest-agent", "native/host-helper"])
      mkdirSync(join(root, folder), { recursive: true });
    for (const name of ["setup.sh", "cargo.sh"]) copyFileSync(join(import.meta.dirname, name), join(root, "tools/setup", name));
    for (const name of ["guest-agent", "host-helper"]) writeFileSync(join(root, "native", name, "Cargo.toml"), "");
    writeFileSync(join(root, "package-lock.json"), "{}");
    for (const name of BORROWED) symlinkSync(["/usr/bin", "/bin"].map((d) => join(d, name)).find(existsSync) ?? name, join(bin, name));
    fake("node", "echo v20.1.0");
    fake("cargo", `[ "$1" = --version ] && echo "cargo 1.90.0 (x)" || echo "cargo $*" >>${root}/notes`);
    fake("npm", `echo "npm $*" >>${root}/notes; mkdir -p node_modules/.bin; cp ${bin}/node node_modules/.bin/node`);
    symlinkSync("/bin/cp", join(bin, "cp"));
    fake("apt-get", "exit 0");
    fake("dpkg-query", 'for p in "$@"; do echo "installed $p"; done');
    work({
      root,
      fake,
      run(...args) {
        const result = spawnSync(join(bin, "sh"), [join(root, "tools/setup/setup.sh"), ...args], {
          cwd: "/",
          env: { PATH: bin },
          encoding: "utf8",
        });
        return { code: result.status, stdout: result.stdout, stderr: result.stderr };
      },
      notes: () => (existsSync(join(root, "notes")) ? readFileSync(join(root, "notes"), "utf8").trim().split("\n") : []),
    });
  } finally {
    rmSync(root, { recursive: true });
  }
}

test("it installs once, builds each crate, and does nothing with npm the second time", () => {
  inWorld(({ run, notes, root }) => {
    const first = run("--test");
    assert.equal(first.code, 0, first.stderr);
    assert.match(first.stdout, /^setup: npm packages +\d+\.\d s$/m);
    const builds = ["cargo build --release --locked --target x86_64-unknown-linux-gnu", "cargo build --release --locked"];
    assert.deepEqual(notes(), ["npm ci --no-audit --no-fund", ...builds]);
    const second = run("--test");
    assert.equal(second.code, 0);
    assert.deepEqual(notes().slice(3), builds);
    writeFileSync(join(root, "package-lock.json"), '{"changed":true}');
    run("--test");
    assert.equal(notes().filter((note) => note.startsWith("npm")).length, 2);
  });
});

test("missing or old tools are all named at once, with how to get them", () => {
  inWorld(({ run, fake, root, notes }) => {
    rmSync(join(root, "bin/gcc"));
    fake("node", "echo v18.0.0");
    fake("cargo", "echo cargo 1.80.1");
    const { code, stderr } = run();
    assert.equal(code, 1);
    assert.match(stderr, /gcc/);
    assert.match(stderr, /node 20 or newer \(found: 18\.0\.0\)/);
    assert.match(stderr, /cargo 1\.85 or newer \(found: 1\.80\.1\)/);
    assert.deepEqual(notes(), []);
  });
});

test("a failing step shows the end of its log and stops", () => {
  inWorld(({ run, fake, notes }) => {
    fake("npm", 'echo "npm error: no such package" >&2; exit 1');
    const { code, stderr } = run();
    assert.equal(code, 1);
    assert.match(stderr, /npm packages failed[^]*no such package/);
    assert.deepEqual(notes(), []);
  });
});

test("missing Debian packages are installed by root, and asked for otherwise", () => {
  inWorld(({ run, fake, root, notes }) => {
    fake("dpkg-query", "echo installed qemu-utils");
    fake("apt-get", `echo "apt-get $*" >>${root}/notes`);
    fake("id", "echo 1000");
    const refused = run();
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /run as root: apt-get install .*qemu-system-x86/);
    assert.ok(!refused.stderr.includes("qemu-utils"));
    fake("id", "echo 0");
    assert.equal(run().code, 0);
    assert.match(notes()[0] ?? "", /^apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends .*qemu-system-x86/);
  });
});

test("an old list of packages is fetched anew when the first try fails", () => {
  inWorld(({ run, fake, root, notes }) => {
    fake("dpkg-query", "exit 1");
    fake("apt-get", `echo "apt-get $*" >>${root}/notes; case "$*" in *update*) touch ${root}/updated ;; esac; [ -e ${root}/updated ]`);
    symlinkSync("/bin/touch", join(root, "bin/touch"));
    fake("id", "echo 0");
    assert.equal(run().code, 0);
    const apt = notes().filter((note) => note.startsWith("apt-get"));
    assert.deepEqual(
      apt.map((note) => /update|install/.exec(note)?.[0]),
      ["install", "update", "install"],
    );
  });
});
