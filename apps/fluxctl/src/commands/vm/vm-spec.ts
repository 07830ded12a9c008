/** The words of `vm create` and `run` as a request. A field that was not given is not sent: the daemon has the defaults. */
import { readFile } from "node:fs/promises";
import { PlatformError } from "@fluxvm/core";
import type { CreateVmRequest } from "@fluxvm/sdk";
import type { CommandInput, OptionDefinition } from "../../command.ts";
import { parseForward, parseGib, parseInteger, parseMib, parsePairs, parseSeconds } from "../../option-values.ts";

/** Shared by every command that makes a VM. */
export const MACHINE_OPTIONS: readonly OptionDefinition[] = [
  { flags: "--vcpus <count>", description: "virtual CPUs" },
  { flags: "--memory <size>", description: "memory, for example 512M or 2G" },
  { flags: "--disk <size>", description: "size of the root disk, at least the image's" },
  { flags: "--kernel <kernel>", description: "id or name of a kernel (default: the one called default)" },
  { flags: "--network <mode>", description: "user: out through the host; none: no network", choices: ["user", "none"] },
  { flags: "--forward <ports>", description: "[ADDRESS:]HOST:GUEST[/udp]: forward a port of the host to the guest", isList: true },
  { flags: "--allow-cidr <cidr>", description: "let the guest reach this private network", isList: true },
  { flags: "--ttl <duration>", description: "delete the VM after this long, for example 90s or 2h" },
  { flags: "-l, --label <key=value>", description: "label to select it by", isList: true },
  { flags: "--accel <accelerator>", description: "auto, kvm or tcg", choices: ["auto", "kvm", "tcg"] },
  { flags: "--backend <name>", description: "VMM backend, or auto" },
  { flags: "-e, --env <key=value>", description: "added to the environment of what the image runs", isList: true },
  { flags: "-w, --workdir <path>", description: "working directory of what the image runs" },
  { flags: "-u, --user <user>", description: "user of what the image runs" },
];

/** Only where the VM itself is the point. */
export const CREATE_OPTIONS: readonly OptionDefinition[] = [
  { flags: "--kernel-args <text>", description: "appended to the kernel's command line" },
  { flags: "--firmware <kind>", description: "boot the disk's own boot loader, or the kernel directly", choices: ["none", "uefi", "bios"] },
  { flags: "--init <who>", description: "who is PID 1 after a direct kernel boot", choices: ["auto", "agent", "image"] },
  { flags: "--no-agent", description: "without the guest agent: no exec, no files" },
  { flags: "--no-workload", description: "boot the image without running its entrypoint" },
  { flags: "--entrypoint <program>", description: "replaces the image's entrypoint" },
  { flags: "--hostname <name>", description: "cloud-init: the guest's host name" },
  { flags: "--cloud-user <name>", description: "cloud-init: make this account, with sudo and the keys" },
  { flags: "--ssh-key <key>", description: "cloud-init: authorised key, or @FILE with one", isList: true },
  { flags: "--package <name>", description: "cloud-init: package to install", isList: true },
  { flags: "--runcmd <command>", description: "cloud-init: shell command at the first boot", isList: true },
  { flags: "--write-file <path=content>", description: "cloud-init: file to write; PATH=@FILE takes a local one", isList: true },
  { flags: "--user-data <file>", description: "cloud-init: raw user data, in place of the options above" },
];

/** `command` replaces what the image runs. */
export async function buildCreateRequest(name: string, input: CommandInput, command: readonly string[]): Promise<CreateVmRequest> {
  const cloudInit = await buildCloudInit(input);
  const workload = buildWorkload(input, command);
  const labels = parsePairs("--label", input.texts("label"));
  const optional = <K extends keyof CreateVmRequest>(key: K, value: CreateVmRequest[K] | undefined): Partial<CreateVmRequest> =>
    value === undefined ? {} : { [key]: value };
  return {
    name,
    ...optional("image", input.text("image")),
    ...optional("kernel", input.text("kernel")),
    ...optional("kernel_args", input.text("kernelArgs")),
    ...optional("backend", input.text("backend")),
    ...optional(
      "vcpus",
      parseOptional(input.text("vcpus"), (text) => parseInteger("--vcpus", text)),
    ),
    ...optional(
      "memory_mib",
      parseOptional(input.text("memory"), (text) => parseMib("--memory", text)),
    ),
    ...optional(
      "disk_size_gib",
      parseOptional(input.text("disk"), (text) => parseGib("--disk", text)),
    ),
    ...optional(
      "ttl_seconds",
      parseOptional(input.text("ttl"), (text) => Math.ceil(parseSeconds("--ttl", text))),
    ),
    ...optional("accel", pick(input.text("accel"), ["auto", "kvm", "tcg"])),
    ...optional("firmware", pick(input.text("firmware"), ["none", "uefi", "bios"])),
    ...optional("init", pick(input.text("init"), ["auto", "agent", "image"])),
    ...optional("network", buildNetwork(input)),
    ...optional("labels", Object.keys(labels).length === 0 ? undefined : labels),
    ...optional("agent", input.isOff("agent") ? { enabled: false } : undefined),
    ...optional("workload", workload),
    ...optional("cloud_init", cloudInit),
  };
}

function parseOptional<T>(text: string | undefined, parse: (text: string) => T): T | undefined {
  return text === undefined ? undefined : parse(text);
}

function pick<const T extends string>(text: string | undefined, choices: readonly T[]): T | undefined {
  return choices.find((choice) => choice === text);
}

function buildNetwork(input: CommandInput): CreateVmRequest["network"] {
  const forwards = input.texts("forward").map((text) => parseForward("--forward", text));
  const allowCidrs = input.texts("allowCidr");
  if (input.text("network") === "none") {
    if (forwards.length > 0 || allowCidrs.length > 0) {
      throw new PlatformError("REQUEST_INVALID", "Invalid --network: none has nothing to forward or allow");
    }
    return { mode: "none" };
  }
  if (input.text("network") === undefined && forwards.length === 0 && allowCidrs.length === 0) return undefined;
  return {
    mode: "user",
    ...(forwards.length === 0 ? {} : { forwards }),
    ...(allowCidrs.length === 0 ? {} : { allow_cidrs: [...allowCidrs] }),
  };
}

function buildWorkload(input: CommandInput, command: readonly string[]): CreateVmRequest["workload"] {
  const env = parsePairs("--env", input.texts("env"));
  const entrypoint = input.text("entrypoint");
  const workload = {
    ...(entrypoint === undefined ? {} : { entrypoint: entrypoint === "" ? [] : [entrypoint] }),
    ...(command.length === 0 ? {} : { command: [...command] }),
    ...(Object.keys(env).length === 0 ? {} : { env }),
    ...(input.text("user") === undefined ? {} : { user: input.text("user") }),
    ...(input.text("workdir") === undefined ? {} : { working_dir: input.text("workdir") }),
    ...(input.isOff("workload") ? { enabled: false } : {}),
  };
  return Object.keys(workload).length === 0 ? undefined : workload;
}

async function buildCloudInit(input: CommandInput): Promise<CreateVmRequest["cloud_init"]> {
  const keys = await Promise.all(input.texts("sshKey").map(async (text) => await textOrFile(text)));
  const files = await Promise.all(input.texts("writeFile").map(async (text) => await readWriteFile(text)));
  const userData = input.text("userData");
  const spec = {
    ...(input.text("hostname") === undefined ? {} : { hostname: input.text("hostname") }),
    ...(input.text("cloudUser") === undefined ? {} : { user: input.text("cloudUser") }),
    ...(keys.length === 0 ? {} : { ssh_authorized_keys: keys.map((key) => key.trim()) }),
    ...(input.texts("package").length === 0 ? {} : { packages: [...input.texts("package")] }),
    ...(input.texts("runcmd").length === 0 ? {} : { runcmd: [...input.texts("runcmd")] }),
    ...(files.length === 0 ? {} : { write_files: files }),
    ...(userData === undefined ? {} : { user_data: await readFile(userData, "utf8") }),
  };
  return Object.keys(spec).length === 0 ? undefined : spec;
}

async function textOrFile(text: string): Promise<string> {
  return text.startsWith("@") ? await readFile(text.slice(1), "utf8") : text;
}

async function readWriteFile(text: string): Promise<{ path: string; content: string }> {
  const [path = "", content = ""] = Object.entries(parsePairs("--write-file", [text]))[0] ?? [];
  return { path, content: await textOrFile(content) };
}
