/** The main journey typed at a shell: every step is `fluxctl` as a process, with its output and exit codes. */
import assert from "node:assert/strict";
import { lstatSync, mkdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { ensureBusyboxLayout } from "../fixtures/artefacts.ts";
import { fluxctl, type CliOptions, type CliResult } from "../fixtures/cli.ts";
import { importKernel, startDaemon, type TestDaemon } from "../fixtures/daemon.ts";

describe("fluxctl", () => {
  let daemon: TestDaemon;
  const releases: (() => Promise<void>)[] = [];
  before(async () => {
    daemon = await startDaemon({ after: (release) => releases.push(release as () => Promise<void>) });
    await importKernel(daemon);
  });
  after(async () => {
    for (const release of releases) await release();
  });

  async function cli(args: readonly string[], options: CliOptions = {}): Promise<CliResult> {
    return await fluxctl(daemon, args, options);
  }

  async function succeed(args: readonly string[], options: CliOptions = {}): Promise<string> {
    const result = await cli(args, options);
    assert.equal(result.code, 0, `fluxctl ${args.join(" ")}: ${JSON.stringify(result)}`);
    return result.stdout;
  }

  it("run makes the image, streams both outputs, exits with the command's code and leaves no VM", async () => {
    const source = ensureBusyboxLayout();
    const result = await cli(["run", "--memory", "192M", source, "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert.deepEqual([result.code, result.stdout], [7, "out\n"], result.stderr);
    assert.match(result.stderr, /^err$/m);
    assert.equal(await succeed(["vm", "list", "--output", "name"]), "");
    assert.equal(await succeed(["image", "list", "--output", "name"]), `${source}\n`);
  });

  it("run that is interrupted deletes its VM", async () => {
    const args = ["run", "--memory", "192M", ensureBusyboxLayout(), "--", "sh", "-c", "echo started; sleep 600"];
    const result = await cli(args, { onOutput: (text, kill) => void (text.includes("started") && kill("SIGINT")) });
    assert.equal(result.code, 130, JSON.stringify(result));
    assert.equal(await succeed(["vm", "list", "--output", "name"]), "");
  });

  it("creates a VM that is ready, and shows it as table, JSON and names", async () => {
    await succeed([
      "vm",
      "create",
      "cli",
      "--image",
      ensureBusyboxLayout(),
      "--memory",
      "192M",
      "--label",
      "tier=test",
      "--no-workload",
      "--ready",
    ]);
    assert.match(await succeed(["vm", "list"]), /NAME[\s\S]*cli\s+running/i);
    assert.equal(await succeed(["vm", "list", "--label", "tier=test", "--output", "name"]), "cli\n");
    assert.equal(await succeed(["vm", "list", "--label", "tier!=test", "--output", "name"]), "");
    const view = JSON.parse(await succeed(["vm", "get", "cli", "--output", "json"])) as { state: string };
    assert.equal(view.state, "running");
  });

  it("exec takes standard input and has a terminal when asked", async () => {
    const bytes = "one\ntwo\n".repeat(5000);
    assert.equal(await succeed(["exec", "-i", "cli", "--", "cat"], { input: bytes }), bytes);
    const terminal = await cli(["exec", "-it", "cli", "--", "sh", "-c", "tty; test -t 0 && test -t 1 && exit 5"], { terminal: true });
    assert.match(terminal.stdout, /\/dev\/pts\/\d/);
    assert.equal(terminal.code, 5);
    const user = await succeed(["exec", "-u", "app", "-w", "/tmp", "-e", "A=b c", "cli", "--", "sh", "-c", "id -u; pwd; echo $A"]);
    assert.equal(user, "1000\n/tmp\nb c\n");
    assert.equal((await cli(["exec", "--timeout", "1s", "cli", "--", "sleep", "60"])).code, 124);
    assert.equal((await cli(["exec", "cli", "--", "sh", "-c", "kill -TERM $$"])).code, 128 + 15);
  });

  it("console is a shell in a terminal", async () => {
    const shell = await cli(["console", "cli"], { terminal: true, input: "echo con$((1 + 1))sole; exit 4\n" });
    assert.match(shell.stdout, /con2sole/);
    assert.equal(shell.code, 4, shell.stdout);
  });

  it("cp takes a directory in and out with modes and links", async () => {
    const out = join(daemon.directory, "out");
    const tree = join(daemon.directory, "tree");
    mkdirSync(join(tree, "deep"), { recursive: true });
    writeFileSync(join(tree, "deep/script"), "#!/bin/sh\necho hi\n", { mode: 0o751 });
    symlinkSync("deep/script", join(tree, "link"));
    await succeed(["cp", tree, "cli:/root/copied"]);
    assert.equal(await succeed(["exec", "cli", "--", "/root/copied/link"]), "hi\n");
    await succeed(["cp", "cli:/root/copied", out]);
    assert.equal(readFileSync(join(out, "deep/script"), "utf8"), "#!/bin/sh\necho hi\n");
    assert.equal(lstatSync(join(out, "deep/script")).mode & 0o777, 0o751);
    assert.equal(readlinkSync(join(out, "link")), "deep/script");
    await succeed(["cp", "-", "cli:/root/piped"], { input: "through a pipe" });
    assert.equal(await succeed(["cp", "cli:/root/piped", "-"]), "through a pipe");
    assert.match(await succeed(["file", "ls", "cli:/root"]), /copied[\s\S]*piped/);
  });

  it("logs follow until the VM is gone", async () => {
    const following = cli(["logs", "-f", "cli"]);
    await succeed(["vm", "stop", "cli"]);
    await succeed(["vm", "delete", "cli"]);
    const logs = await following;
    assert.equal(logs.code, 0, logs.stderr);
    assert.match(logs.stdout, /reboot: Power down/);
  });

  it("says what is wrong and what to do, with the exit code of its class", async () => {
    const missing = await cli(["vm", "get", "nobody"]);
    assert.equal(missing.code, 3);
    assert.match(missing.stderr, /nobody.*VM_NOT_FOUND[\s\S]*vm list/);
    const wrong = await cli(["vm", "create", "a/b", "--image", ensureBusyboxLayout()]);
    assert.equal(wrong.code, 2);
    assert.match(wrong.stderr, /name/);
    assert.equal((await cli(["vm", "create", "none", "--image", "nowhere"])).code, 3);
    assert.equal((await cli(["vm", "lst"])).code, 2);
    const away = await fluxctl({ socket: join(daemon.directory, "nobody.sock") }, ["vm", "list"]);
    assert.equal(away.code, 6);
    assert.match(away.stderr, /fluxctl serve|--server/);
    assert.equal(await succeed(["vm", "list", "--output", "name"]), "");
  });
});
