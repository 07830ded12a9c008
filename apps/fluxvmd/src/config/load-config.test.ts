import { strict as assert } from "node:assert";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { PlatformError, type ErrorCode } from "@fluxvm/core";
import { CONFIG_FLAGS, parseFlags } from "./flags.ts";
import { findKeyLine } from "./key-line.ts";
import { loadConfig } from "./load-config.ts";

function writeConfig(t: TestContext, text: string): string {
  const directory = mkdtempSync(join(tmpdir(), "fluxvm-config-"));
  t.after(() => rmSync(directory, { recursive: true }));
  const path = join(directory, "config.toml");
  writeFileSync(path, text);
  return path;
}

function refusal(work: () => unknown, code: ErrorCode = "CONFIG_INVALID"): string {
  try {
    work();
  } catch (error) {
    assert.ok(error instanceof PlatformError);
    assert.equal(error.code, code);
    return error.message;
  }
  return assert.fail("it was accepted");
}

test("without a file every default is there, paths are absolute, and nothing can be changed", () => {
  const config = loadConfig({ overrides: {} });
  assert.deepEqual([config.state_dir, config.run_dir, config.socket], ["/var/lib/fluxvm", "/run/fluxvm", "/run/fluxvm/fluxvm.sock"]);
  assert.equal(config.vm.ready_timeout_ms, 60_000);
  assert.throws(() => Object.assign(config.vm, { accel: "kvm" }), TypeError);
  const elsewhere = loadConfig({ overrides: { state_dir: "/tmp/x" } });
  assert.deepEqual([elsewhere.run_dir, elsewhere.socket], ["/tmp/x/run", "/tmp/x/run/fluxvm.sock"]);
});

test("flags win over the file, key by key", (t) => {
  const path = writeConfig(t, 'listen = "127.0.0.1:1"\n[vm]\naccel = "tcg"\nmax_vcpus = 3\n');
  const config = loadConfig({ path, overrides: { vm: { max_vcpus: 5 } } });
  assert.deepEqual([config.listen, config.vm.accel, config.vm.max_vcpus], ["127.0.0.1:1", "tcg", 5]);
});

test("an unknown key stops the daemon with the one likely meant, and the line", (t) => {
  const path = writeConfig(t, '# comment\nlisten = ""\n\n[vm]\naccel = "tcg"\nmax_memory_mb = 4\n');
  assert.equal(
    refusal(() => loadConfig({ path, overrides: {} })),
    `Cannot load config: unknown key "vm.max_memory_mb", did you mean "vm.max_memory_mib" (${path}:6)`,
  );
});

test("a wrong type or value names key, reason and line", (t) => {
  const type = writeConfig(t, '[vm]\nmax_vcpus = "many"\n');
  assert.equal(
    refusal(() => loadConfig({ path: type, overrides: {} })),
    `Cannot load config: "vm.max_vcpus" must be a whole number, not a string (${type}:2)`,
  );
  const section = writeConfig(t, "vm = 3\n");
  assert.match(
    refusal(() => loadConfig({ path: section, overrides: {} })),
    /"vm" must be an object, not 3 \(.*:1\)/,
  );
  const level = writeConfig(t, 'log = { level = "loud" }\n');
  assert.match(
    refusal(() => loadConfig({ path: level, overrides: {} })),
    /"log.level" must be one of "trace", .*:1\)/,
  );
  const date = writeConfig(t, "listen = 2026-01-01\n");
  assert.match(
    refusal(() => loadConfig({ path: date, overrides: {} })),
    /"listen" must be a string, not a date/,
  );
});

test("text that is not TOML, and a file that is not there", (t) => {
  const path = writeConfig(t, 'listen = "x"\nlisten = \n');
  assert.match(
    refusal(() => loadConfig({ path, overrides: {} })),
    new RegExp(`^Cannot load config: .* \\(${path}:2\\)$`),
  );
  assert.match(
    refusal(() => loadConfig({ path: "/nowhere/x.toml", overrides: {} }), "CONFIG_UNREADABLE"),
    /ENOENT/,
  );
  assert.equal(loadConfig({ fallbackPath: "/nowhere/x.toml", overrides: {} }).listen, "127.0.0.1:7788");
});

test("a socket path that no kernel takes is refused before anything starts", () => {
  assert.match(
    refusal(() => loadConfig({ overrides: { state_dir: `/tmp/${"x".repeat(120)}` } })),
    /longer than 107 bytes/,
  );
});

test("the line of a key: in a table, dotted, inline, not at all", () => {
  const text = 'a = 1\n[vm]\naccel = "x"\n[image]\nparallel_imports = 2\n"api".max_body_bytes = 3\n';
  assert.equal(findKeyLine(text, ["a"]), 1);
  assert.equal(findKeyLine(text, ["vm", "accel"]), 3);
  assert.equal(findKeyLine(text, ["vm", "other"]), 2);
  assert.equal(findKeyLine("log = { level = 1 }", ["log", "level"]), 1);
  assert.equal(findKeyLine(text, ["nowhere"]), undefined);
});

test("every key has a flag, and names are unique", () => {
  assert.equal(new Set(CONFIG_FLAGS.map((f) => f.name)).size, CONFIG_FLAGS.length);
  for (const name of ["--listen", "--state-dir", "--run-dir", "--socket", "--log-level", "--vm-launch-timeout-ms", "--api-allowed-hosts"]) {
    assert.ok(
      CONFIG_FLAGS.some((f) => f.name === name),
      name,
    );
  }
});

test("flags are parsed by their key's type, in both spellings", () => {
  const parsed = parseFlags(["--listen", "", "--vm-max-vcpus=4", "--vm-backend", "qemu,other", "--json", "--config", "/c"], ["--json"]);
  assert.deepEqual(parsed.overrides, { listen: "", vm: { max_vcpus: 4, backend: ["qemu", "other"] } });
  assert.deepEqual([parsed.configPath, parsed.switches.has("--json")], ["/c", true]);
  assert.match(
    refusal(() => loadConfig({ overrides: parseFlags(["--vm-max-vcpus", "few"], []).overrides })),
    /"vm.max_vcpus" must be a whole number/,
  );
});

test("unknown flags, stray arguments and missing values are refused", () => {
  assert.match(
    refusal(() => parseFlags(["--state-dri", "/x"], []), "REQUEST_INVALID"),
    /Unknown flag "--state-dri", did you mean --state-dir/,
  );
  assert.match(
    refusal(() => parseFlags(["here"], []), "REQUEST_INVALID"),
    /Unknown argument "here"/,
  );
  assert.match(
    refusal(() => parseFlags(["--listen"], []), "REQUEST_INVALID"),
    /needs a value/,
  );
});
