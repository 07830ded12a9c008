/**
 * From a request to a specification that can be run, or a refusal that names the field. The schema has checked shapes
 * and ranges; here is what needs more than one field, the host's policy, or an image and a kernel to be looked at.
 */
import type { CloudInitSpec, CreateVmRequest, NetworkSpec } from "@fluxvm/contracts";
import { GIB, invalidField, isId, PlatformError, type CallOptions } from "@fluxvm/core";
import { computeWorkload, type BackendNeeds, type BootSpec, type ImageInfo, type KernelInfo, type VmSpec } from "@fluxvm/engine";
import { isIpv4, parseCidr } from "./cidr.ts";
import type { ManagerConfig, ManagerPorts } from "./ports.ts";

const MAX_HOSTNAME = 63;

/** What can be said without looking anything up. @throws PlatformError `REQUEST_INVALID`, `FIELD_UNSUPPORTED`. */
export function checkRequest(request: CreateVmRequest, config: Pick<ManagerConfig, "maxVcpus" | "maxMemoryMib">): void {
  if (isId("vm", request.name)) throw invalidField("name", "a name must not look like a VM's id");
  if ((request.vcpus ?? 1) > config.maxVcpus) throw invalidField("vcpus", `this host allows at most ${config.maxVcpus} ([vm] max_vcpus)`);
  if ((request.memory_mib ?? 512) > config.maxMemoryMib)
    throw invalidField("memory_mib", `this host allows at most ${config.maxMemoryMib} ([vm] max_memory_mib)`);
  checkBootFields(request);
  checkNetwork(request.network);
  checkCloudInit(request.cloud_init);
  checkWorkload(request);
}

function checkBootFields(request: CreateVmRequest): void {
  const byFirmware = request.firmware === "uefi" || request.firmware === "bios";
  if (request.image === undefined) {
    if (byFirmware) throw invalidField("firmware", "there is no disk to boot from: give an image");
    if (request.disk_size_gib !== undefined) throw invalidField("disk_size_gib", "there is no disk: give an image");
    if (request.cloud_init !== undefined) throw invalidField("cloud_init", "there is nothing that reads it: give an image");
    if (request.init === "image") throw invalidField("init", "there is no image whose init could run");
  }
  if (byFirmware) {
    if (request.kernel !== undefined) throw invalidField("kernel", `the disk's own boot loader starts with firmware "${request.firmware}"`);
    if (request.kernel_args !== undefined)
      throw invalidField("kernel_args", `the disk's own boot loader starts with firmware "${request.firmware}"`);
    if (request.init !== undefined && request.init !== "auto") throw invalidField("init", "it applies to direct kernel boot only");
  }
  if (request.kernel_args !== undefined && hasControl(request.kernel_args))
    throw invalidField("kernel_args", "control characters are not allowed");
}

/** Characters below the space, and DEL: they must not be in a kernel command line or a key. */
function hasControl(text: string): boolean {
  return Array.from(text).some((char) => char < " " || char === "\u007f");
}

function checkNetwork(network: NetworkSpec | undefined): void {
  if (network?.mode !== "user") return;
  const seen = new Set<string>();
  for (const [i, forward] of (network.forwards ?? []).entries()) {
    const address = forward.host_address ?? "127.0.0.1";
    if (!isIpv4(address)) throw invalidField(`network.forwards.${i}.host_address`, `${JSON.stringify(address)} is no IPv4 address`);
    const clash = [...seen].find((other) => overlaps(other, describeForward(forward)));
    if (clash !== undefined) throw invalidField(`network.forwards.${i}.host_port`, `${clash} is forwarded twice`);
    seen.add(describeForward(forward));
  }
  for (const [i, cidr] of (network.allow_cidrs ?? []).entries()) parseCidr(cidr, `network.allow_cidrs.${i}`);
}

/** `tcp 127.0.0.1:8080` */
export function describeForward(forward: {
  readonly protocol?: string;
  readonly host_address?: string;
  readonly host_port: number;
}): string {
  return `${forward.protocol ?? "tcp"} ${forward.host_address ?? "127.0.0.1"}:${forward.host_port}`;
}

/** Whether two forwards want the same port; 0.0.0.0 is every address. */
export function overlaps(a: string, b: string): boolean {
  const split = (text: string): readonly string[] => text.split(/[ :]/);
  const [protocolA, addressA, portA] = split(a);
  const [protocolB, addressB, portB] = split(b);
  const sameAddress = addressA === addressB || addressA === "0.0.0.0" || addressB === "0.0.0.0";
  return protocolA === protocolB && portA === portB && sameAddress;
}

function checkCloudInit(cloudInit: CloudInitSpec | undefined): void {
  if (cloudInit === undefined) return;
  const { user_data: userData, hostname: _, ...others } = cloudInit;
  const given = Object.entries(others).find(([, value]) => value !== undefined);
  if (userData !== undefined && given !== undefined) throw invalidField("cloud_init.user_data", `it excludes cloud_init.${given[0]}`);
  for (const [i, key] of (cloudInit.ssh_authorized_keys ?? []).entries()) {
    if (hasControl(key)) throw invalidField(`cloud_init.ssh_authorized_keys.${i}`, "a key is one line");
  }
  for (const [i, file] of (cloudInit.write_files ?? []).entries()) {
    if (file.path.split("/").includes("..")) throw invalidField(`cloud_init.write_files.${i}.path`, 'must not contain ".."');
  }
}

function checkWorkload(request: CreateVmRequest): void {
  const { workload } = request;
  if (workload === undefined) return;
  if (request.image === undefined && (workload.entrypoint ?? workload.command) === undefined)
    throw invalidField("workload", "there is no image to run: give an image");
  if (request.init === "image") throw invalidField("workload", "the image's own init decides what runs; init must be auto or agent");
  if (request.firmware === "uefi" || request.firmware === "bios") throw invalidField("workload", "it applies to direct kernel boot only");
  const words = [...(workload.entrypoint ?? []), ...(workload.command ?? [])];
  if (words.some((word) => word.includes("\u0000"))) throw invalidField("workload", "arguments must not contain NUL");
  if (Object.values(workload.env ?? {}).some((value) => value.includes("\u0000")))
    throw invalidField("workload.env", "values must not contain NUL");
}

/** Looks image and kernel up and settles every default. @throws PlatformError */
export async function resolveSpec(
  request: CreateVmRequest,
  ports: Pick<ManagerPorts, "artifacts" | "config">,
  options: CallOptions,
): Promise<VmSpec> {
  const { artifacts, config } = ports;
  const image = request.image === undefined ? undefined : await artifacts.findImage(request.image, options);
  const firmware = decideFirmware(request, image);
  if (image?.kind === "rootfs" && firmware !== "none")
    throw invalidField("firmware", `image "${image.name}" is a bare file system without a boot loader`);
  const kernel = firmware === "none" ? await artifacts.findKernel(request.kernel, options) : undefined;
  const agent = decideAgent(request, kernel);
  const boot: BootSpec =
    kernel === undefined
      ? { kind: "firmware", firmware: firmware === "bios" ? "bios" : "uefi" }
      : { kind: "kernel", kernel, args: request.kernel_args ?? "" };
  if (request.init === "agent" && kernel?.hasAgent !== true) throw invalidField("init", "the kernel carries no agent that could be init");
  return {
    vcpus: request.vcpus ?? 1,
    memoryMib: request.memory_mib ?? 512,
    accel: request.accel === undefined || request.accel === "auto" ? config.accel : request.accel,
    image: image === undefined ? undefined : { id: image.id, name: image.name, kind: image.kind },
    diskBytes: image === undefined ? undefined : decideDiskBytes(request, image, config),
    boot,
    network: completeNetwork(request.network),
    hostname: request.cloud_init?.hostname ?? toHostname(request.name),
    agent,
    configDisk: kernel?.hasAgent ?? agent,
    init: request.init ?? "auto",
    workload: kernel?.hasAgent === true && request.init !== "image" ? computeWorkload(image?.config, request.workload) : undefined,
    cloudInit: request.cloud_init,
  };
}

/** A disk brings its own boot loader unless a kernel is named; everything else is booted by a kernel of ours. */
function decideFirmware(request: CreateVmRequest, image: ImageInfo | undefined): "none" | "uefi" | "bios" {
  if (request.firmware !== undefined) return request.firmware;
  const byKernel =
    request.kernel !== undefined ||
    request.kernel_args !== undefined ||
    (request.init !== undefined && request.init !== "auto") ||
    request.workload !== undefined;
  return image?.kind === "disk" && !byKernel ? "uefi" : "none";
}

/** With a kernel the agent is there if its initrd has it; a disk's own system may have it as a service, if the request says so. */
function decideAgent(request: CreateVmRequest, kernel: KernelInfo | undefined): boolean {
  const wanted = request.agent === undefined ? undefined : (request.agent.enabled ?? true);
  if (kernel === undefined) return wanted === true;
  if (wanted === true && !kernel.hasAgent) throw invalidField("agent.enabled", `kernel "${kernel.name}" carries no guest agent`);
  return kernel.hasAgent && wanted !== false;
}

function decideDiskBytes(request: CreateVmRequest, image: ImageInfo, config: Pick<ManagerConfig, "diskBytes">): number {
  if (request.disk_size_gib === undefined) return Math.max(image.virtualSizeBytes, config.diskBytes);
  // Whole sectors of 4 KiB, whatever fraction of a GiB was asked for.
  const bytes = Math.ceil((request.disk_size_gib * GIB) / 4096) * 4096;
  if (bytes >= image.virtualSizeBytes) return bytes;
  const message = `a disk can only grow: image "${image.name}" has ${image.virtualSizeBytes} bytes, asked for are ${bytes}`;
  throw new PlatformError("DISK_SHRINK_REFUSED", `Invalid disk_size_gib: ${message}`, { fields: [{ path: "disk_size_gib", message }] });
}

function completeNetwork(network: NetworkSpec | undefined): NetworkSpec {
  if (network?.mode === "none") return { mode: "none" };
  const forwards = (network?.forwards ?? []).map((f) => ({
    host_port: f.host_port,
    guest_port: f.guest_port,
    protocol: f.protocol ?? "tcp",
    host_address: f.host_address ?? "127.0.0.1",
  }));
  const allowCidrs = (network?.allow_cidrs ?? []).map((cidr, i) => parseCidr(cidr, `network.allow_cidrs.${i}`));
  return { mode: "user", forwards, allow_cidrs: allowCidrs };
}

/** A VM's name may hold what a host's must not. */
export function toHostname(name: string): string {
  const cleaned = name
    .replaceAll(/[^A-Za-z0-9-]/g, "-")
    .slice(0, MAX_HOSTNAME)
    .replaceAll(/^-+|-+$/g, "");
  return cleaned === "" ? "vm" : cleaned.toLowerCase();
}

export function computeNeeds(spec: VmSpec): BackendNeeds {
  return {
    boot: spec.boot.kind,
    firmware: spec.boot.kind === "firmware" ? spec.boot.firmware : undefined,
    networkMode: spec.network.mode,
    accel: spec.accel,
    agent: spec.agent,
    vcpus: spec.vcpus,
    disk: spec.image !== undefined,
  };
}
