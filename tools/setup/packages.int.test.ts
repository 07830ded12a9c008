/** What `setup.sh --test` installs is what the tests ask for: a program without a package would be a skip on a new machine. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const ROOT = join(import.meta.dirname, "../..");
const GATE = /require(?:Tool|Program)\(t, "([^"]+)"\)/g;
/** Not installed on purpose: `test/expected-skips.json` says why. */
const LEFT_OUT = new Set(["cloud-init"]);
/** On every Debian: essential, or nothing could have been installed without it. */
const ALWAYS = new Set(["apt", "bash", "bsdutils", "coreutils", "dpkg", "mount", "util-linux"]);

function readPackages(): Set<string> {
  const script = readFileSync(join(ROOT, "tools/setup/setup.sh"), "utf8");
  const lists = [...script.matchAll(/^(?:RUN|TEST)_PACKAGES="([^"]+)"$/gm)].map((m) => m[1] ?? "");
  assert.equal(lists.length, 2);
  return new Set(lists.flatMap((list) => list.split(" ")));
}

/** Programs that tests are gated by, with a file that asks for each. */
function listGatedPrograms(): Map<string, string> {
  const files = execFileSync("git", ["ls-files", "-z", "*.test.ts"], { cwd: ROOT, encoding: "utf8" }).split("\0");
  const programs = new Map<string, string>();
  for (const file of files) {
    if (file === "" || !existsSync(join(ROOT, file))) continue;
    for (const [, program = ""] of readFileSync(join(ROOT, file), "utf8").matchAll(GATE))
      if (!LEFT_OUT.has(program)) programs.set(program, file);
  }
  return programs;
}

/** The installed package that a program's file came from. */
function findPackage(program: string): string | undefined {
  const path = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map((folder) => join(folder, program)).find(existsSync);
  if (path === undefined) return undefined;
  for (const candidate of [path, realpathSync(path), path.replace(/^\/usr/, "")]) {
    const found = spawnSync("dpkg-query", ["-S", candidate], { encoding: "utf8" });
    if (found.status === 0) return found.stdout.split(":")[0];
  }
  return undefined;
}

test("each program that tests are gated by comes from a package that setup installs", (t) => {
  if (!existsSync("/usr/bin/dpkg-query")) return t.skip("needs dpkg");
  const packages = readPackages();
  const programs = listGatedPrograms();
  assert.ok(programs.size > 8, "the gates are called otherwise now?");
  const strays = [...programs].flatMap(([program, file]) => {
    const owner = findPackage(program);
    return owner !== undefined && (packages.has(owner) || ALWAYS.has(owner))
      ? []
      : [`${program} of ${owner ?? "no package"}, asked for by ${file}`];
  });
  assert.deepEqual(strays, []);
});
