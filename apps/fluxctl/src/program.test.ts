import assert from "node:assert/strict";
import { test } from "node:test";
import type { Command } from "commander";
import { COMMANDS, NOUNS } from "./commands/index.ts";
import { buildProgram } from "./program.ts";
import { runFake } from "./testing/fake-environment.ts";

test("the help of every command is as written down", async (t) => {
  const paths = [
    [],
    ...Object.keys(NOUNS).map((noun) => [noun]),
    ...COMMANDS.filter((c) => c.takesAnything !== true).map((c) => [...c.path]),
  ];
  for (const path of paths) {
    const { code, stdout, stderr } = await runFake([...path, "--help"]);
    assert.deepEqual([code, stderr], [0, ""], path.join(" "));
    t.assert.fileSnapshot(stdout, `${import.meta.dirname}/../golden/help/${path.join("-") || "fluxctl"}.txt`, { serializers: [String] });
  }
});

test("every command is reached by one path, and says what it does in a sentence", () => {
  const paths = COMMANDS.map((command) => command.path.join(" "));
  assert.equal(new Set(paths).size, paths.length);
  for (const { path, summary, arguments: args = [], options = [] } of COMMANDS) {
    assert.match(summary, /^[A-Z].*[^.]$/, path.join(" "));
    for (const described of [...args, ...options]) assert.ok(described.description.length > 3, path.join(" "));
    assert.ok(path.length === 1 || Object.hasOwn(NOUNS, path[0] ?? ""), path.join(" "));
  }
});

test("no option of a command hides a global one or another of its own", () => {
  const visit = (command: Command): void => {
    const flags = command.options.flatMap((option) => [option.short, option.long]).filter((flag) => flag !== undefined && flag !== null);
    assert.equal(new Set(flags).size, flags.length, `${command.name()}: ${flags.join(" ")}`);
    for (const child of command.commands) visit(child);
  };
  visit(buildProgram());
});

test("wrong words end with the usage code and a hint", async () => {
  const cases: [string[], RegExp][] = [
    [["vm", "lst"], /unknown command 'lst'[^]*Did you mean[^]*list/],
    [["vm", "get"], /missing required argument 'vm'/],
    [["vm", "get", "a", "b"], /too many arguments/],
    [["vm", "list", "--lable", "x"], /unknown option '--lable'[^]*--label/],
    [["vm", "create", "x", "--accel", "foo"], /Allowed choices are auto, kvm, tcg/],
    [["vm", "list", "--output", "yaml"], /Allowed choices are table, json, name/],
    [["vm"], /Usage: fluxctl vm/],
    [[], /Usage: fluxctl/],
  ];
  for (const [words, pattern] of cases) {
    const { code, stdout, stderr } = await runFake(words);
    assert.deepEqual([code, stdout], [2, ""], words.join(" "));
    assert.match(stderr, pattern);
  }
});

test("bad values are refused before anything is asked of a daemon", async () => {
  const cases: [string[], RegExp][] = [
    [["vm", "create", "x", "--memory", "lots"], /Invalid --memory: Not a size/],
    [["vm", "create", "x", "--ttl", "soon"], /Invalid --ttl: Not a duration/],
    [["vm", "create", "x", "--vcpus", "-1"], /Invalid --vcpus/],
    [["vm", "create", "x", "--label", "novalue"], /Invalid --label: "novalue" is not KEY=value/],
    [["vm", "create", "x", "--forward", "80"], /Invalid --forward/],
    [["vm", "create", "x", "--network", "none", "--forward", "80:80"], /none has nothing to forward/],
    [["vm", "create", "x", "--user-data", "/no/such/file"], /Cannot open \/no\/such\/file: there is no such file/],
    [["vm", "wait", "x", "--for", "bliss"], /Invalid --for/],
    [["vm", "patch", "x"], /Nothing to change/],
    [["exec", "x"], /Which command\?/],
    [["cp", "a", "b"], /one side must be VM:\/path/],
    [["cp", "v:/a", "w:/b"], /one side must be local/],
    [["cp", "a", "v:b"], /absolute/],
    [["file", "ls", "/tmp"], /write VM:\/path/],
    [["completion", "csh"], /one of bash, zsh, fish/],
    [["--server", "nowhere", "vm", "list"], /Invalid server address/],
    [["vm", "list", "--server", "http://x", "--token-file", "/no/token"], /Cannot read the token file/],
  ];
  for (const [words, pattern] of cases) {
    const { code, stdout, stderr, environment } = await runFake(words);
    assert.ok(code === 2 || code === 3, `${words.join(" ")}: ${code}`);
    assert.equal(stdout, "");
    assert.match(stderr, pattern);
    assert.equal(environment.leftovers, 0);
  }
});

test("serve and doctor hand every word on, --help too", async () => {
  const { environment, code } = await runFake(["serve", "--state-dir", "/x", "--help", "-q", "--", "y"]);
  assert.deepEqual(environment.daemonArgs, ["serve", "--state-dir", "/x", "--help", "-q", "--", "y"]);
  assert.equal(code, 4, "the process could not be replaced");
  assert.deepEqual((await runFake(["doctor"])).environment.daemonArgs, ["doctor"]);
});
