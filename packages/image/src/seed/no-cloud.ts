/**
 * The three files of a NoCloud seed. Their YAML is JSON with a first line, which every YAML 1.1 reader takes, except
 * for characters that YAML has rules of its own about: those are written as escapes. Accepted by cloud-init 22.4.
 */
import type { CloudInitSpec } from "@fluxvm/contracts";
import { invalidField } from "@fluxvm/core";

/** How the guest configures its one network device. */
export type SeedNetwork =
  | { readonly kind: "none" }
  | { readonly kind: "dhcp"; readonly mac?: string }
  | {
      readonly kind: "static";
      readonly mac?: string;
      /** With prefix length: `10.0.2.15/24`. */
      readonly addresses: readonly string[];
      readonly gateway?: string;
      readonly nameservers?: readonly string[];
    };

export interface NoCloudInput {
  /** Changes when the VM is a new machine to cloud-init: its id. */
  readonly instanceId: string;
  /** Used when the specification names none. */
  readonly hostname: string;
  readonly cloudInit?: CloudInitSpec | undefined;
  /** Default: DHCP on the first Ethernet device. */
  readonly network?: SeedNetwork | undefined;
}

export interface NoCloudFiles {
  readonly "meta-data": string;
  readonly "user-data": string;
  readonly "network-config": string;
}

/** @throws PlatformError `REQUEST_INVALID` when raw user data comes with fields it would replace */
export function buildNoCloudFiles(input: NoCloudInput): NoCloudFiles {
  const spec = input.cloudInit ?? {};
  const hostname = spec.hostname ?? input.hostname;
  return {
    "meta-data": `${toYaml({ "instance-id": input.instanceId, "local-hostname": hostname })}\n`,
    "user-data":
      spec.user_data === undefined ? `#cloud-config\n${toYaml(cloudConfig(spec, hostname))}\n` : rawUserData(spec, spec.user_data),
    "network-config": `${toYaml(networkConfig(input.network ?? { kind: "dhcp" }))}\n`,
  };
}

function rawUserData(spec: CloudInitSpec, userData: string): string {
  for (const key of ["user", "ssh_authorized_keys", "packages", "runcmd", "write_files"] as const) {
    if (spec[key] !== undefined) throw invalidField(`cloud_init.${key}`, "cannot be used together with user_data");
  }
  return userData;
}

function cloudConfig(spec: CloudInitSpec, hostname: string): Record<string, unknown> {
  const keys = (spec.ssh_authorized_keys ?? []).map((key) => key.trim());
  const packages = spec.packages ?? [];
  const runcmd = spec.runcmd ?? [];
  return {
    hostname: hostname.split(".")[0],
    ...(hostname.includes(".") ? { fqdn: hostname } : {}),
    manage_etc_hosts: "localhost",
    locale: "false", // the image's stays: cloud-init's own choice fails where that locale is not installed
    ...(spec.user === undefined ? {} : { users: [account(spec.user, keys)] }),
    ...(spec.user === undefined && keys.length > 0 ? { ssh_authorized_keys: keys } : {}),
    ...(packages.length === 0 ? {} : { package_update: true, packages }),
    ...(runcmd.length === 0 ? {} : { runcmd }),
    ...(spec.write_files === undefined || spec.write_files.length === 0 ? {} : { write_files: spec.write_files.map(fileEntry) }),
  };
}

function account(name: string, keys: readonly string[]): Record<string, unknown> {
  return {
    name,
    sudo: "ALL=(ALL) NOPASSWD:ALL",
    shell: "/bin/bash",
    lock_passwd: true,
    ...(keys.length === 0 ? {} : { ssh_authorized_keys: keys }),
  };
}

type FileSpec = NonNullable<CloudInitSpec["write_files"]>[number];

function fileEntry(file: FileSpec): Record<string, unknown> {
  const isPlain = /^[\t\n\u0020-\u007e]*$/.test(file.content);
  const isOthers = file.owner !== undefined && !/^(root|0)(:(root|0))?$/.test(file.owner);
  return {
    path: file.path,
    ...(isPlain ? { content: file.content } : { encoding: "b64", content: Buffer.from(file.content, "utf8").toString("base64") }),
    ...(file.permissions === undefined ? {} : { permissions: file.permissions.padStart(4, "0") }),
    ...(file.owner === undefined ? {} : { owner: file.owner }),
    ...(isOthers ? { defer: true } : {}), // its owner may be an account that is made after plain files are written
  };
}

function networkConfig(network: SeedNetwork): Record<string, unknown> {
  if (network.kind === "none") return { version: 2, ethernets: {} };
  const match = network.mac === undefined ? { name: "e*" } : { macaddress: network.mac.toLowerCase() };
  if (network.kind === "dhcp") return { version: 2, ethernets: { primary: { match, dhcp4: true } } };
  const { addresses, gateway, nameservers = [] } = network;
  const device = {
    match,
    addresses,
    ...(gateway === undefined ? {} : { [gateway.includes(":") ? "gateway6" : "gateway4"]: gateway }),
    ...(nameservers.length === 0 ? {} : { nameservers: { addresses: nameservers } }),
  };
  return { version: 2, ethernets: { primary: device } };
}

/**
 * JSON whose strings also mean the same in YAML 1.1: raw next-line, separators and the byte order mark would be folded
 * or refused there (YAML 1.1, 5.1 and 5.4), and half a surrogate pair is no character.
 */
export function toYaml(value: unknown): string {
  const text = JSON.stringify(value, (_, item: unknown) => (typeof item === "string" ? item.toWellFormed() : item), 2);
  return text.replaceAll(
    /[\u007f-\u00a0\u2028\u2029\ufeff\ufffe\uffff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
