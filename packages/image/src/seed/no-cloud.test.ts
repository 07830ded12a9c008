import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import fc from "fast-check";
import { buildNoCloudFiles, toYaml } from "./no-cloud.ts";

const base = { instanceId: "vm-1", hostname: "web" };

function readCloudConfig(userData: string): Record<string, unknown> {
  const [first, ...rest] = userData.split("\n");
  assert.equal(first, "#cloud-config");
  return JSON.parse(rest.join("\n")) as Record<string, unknown>; // it is JSON by construction
}

test("with nothing asked for, a guest still gets its name and an address", () => {
  const files = buildNoCloudFiles(base);
  assert.deepEqual(JSON.parse(files["meta-data"]), { "instance-id": "vm-1", "local-hostname": "web" });
  assert.deepEqual(readCloudConfig(files["user-data"]), { hostname: "web", manage_etc_hosts: "localhost", locale: "false" });
  assert.deepEqual(JSON.parse(files["network-config"]), { version: 2, ethernets: { primary: { match: { name: "e*" }, dhcp4: true } } });
});

test("user, keys, packages, commands and files arrive", () => {
  const config = readCloudConfig(
    buildNoCloudFiles({
      ...base,
      cloudInit: {
        hostname: "db.example.org",
        user: "bob",
        ssh_authorized_keys: ["ssh-ed25519 AAAA bob\n"],
        packages: ["htop"],
        runcmd: ["echo 'a: b'", ["touch", "/x y"]],
        write_files: [
          { path: "/etc/a", content: "one: two\n", permissions: "600" },
          { path: "/etc/b", content: "h\u00e9", owner: "bob:bob" },
          { path: "/etc/c", content: "", owner: "root:root" },
        ],
      },
    })["user-data"],
  );
  assert.deepEqual(
    [config["hostname"], config["fqdn"], config["packages"], config["package_update"]],
    ["db", "db.example.org", ["htop"], true],
  );
  assert.deepEqual(config["users"], [
    { name: "bob", sudo: "ALL=(ALL) NOPASSWD:ALL", shell: "/bin/bash", lock_passwd: true, ssh_authorized_keys: ["ssh-ed25519 AAAA bob"] },
  ]);
  assert.deepEqual(config["runcmd"], ["echo 'a: b'", ["touch", "/x y"]]);
  assert.deepEqual(config["write_files"], [
    { path: "/etc/a", content: "one: two\n", permissions: "0600" },
    { path: "/etc/b", encoding: "b64", content: "aMOp", owner: "bob:bob", defer: true },
    { path: "/etc/c", content: "", owner: "root:root" },
  ]);
});

test("keys without a user go to the image's own account", () => {
  const config = readCloudConfig(buildNoCloudFiles({ ...base, cloudInit: { ssh_authorized_keys: ["k"] } })["user-data"]);
  assert.deepEqual([config["ssh_authorized_keys"], config["users"]], [["k"], undefined]);
});

test("raw user data passes as it is, and only with a hostname beside it", () => {
  const raw = "#!/bin/sh\necho \u2028 hi\n";
  const files = buildNoCloudFiles({ ...base, cloudInit: { user_data: raw, hostname: "x" } });
  assert.equal(files["user-data"], raw);
  assert.match(files["meta-data"], /"local-hostname": "x"/);
  assert.throws(
    () => buildNoCloudFiles({ ...base, cloudInit: { user_data: raw, user: "bob" } }),
    (error) => isPlatformError(error, "REQUEST_INVALID") && error.fields[0]?.path === "cloud_init.user",
  );
});

test("networks: none, by address of the device, static", () => {
  const network = (wanted: Parameters<typeof buildNoCloudFiles>[0]["network"]): unknown =>
    JSON.parse(buildNoCloudFiles({ ...base, network: wanted })["network-config"]);
  assert.deepEqual(network({ kind: "none" }), { version: 2, ethernets: {} });
  assert.deepEqual(network({ kind: "dhcp", mac: "52:54:00:AB:00:01" }), {
    version: 2,
    ethernets: { primary: { match: { macaddress: "52:54:00:ab:00:01" }, dhcp4: true } },
  });
  assert.deepEqual(
    network({ kind: "static", mac: "52:54:00:ab:00:01", addresses: ["10.0.0.2/24"], gateway: "10.0.0.1", nameservers: ["9.9.9.9"] }),
    {
      version: 2,
      ethernets: {
        primary: {
          match: { macaddress: "52:54:00:ab:00:01" },
          addresses: ["10.0.0.2/24"],
          gateway4: "10.0.0.1",
          nameservers: { addresses: ["9.9.9.9"] },
        },
      },
    },
  );
});

test("any text is JSON, and has no character that YAML 1.1 folds or refuses", () => {
  fc.assert(
    fc.property(
      fc.string({
        unit: fc.oneof(
          fc.constantFrom("\u0085", "\u2028", "\u2029", "\ufeff", "\u007f", "\ud800", "\n", "\t", ":", "#", "'"),
          fc.string({ unit: "binary", minLength: 1, maxLength: 1 }),
        ),
      }),
      (text) => {
        const yaml = toYaml({ text });
        for (const char of yaml) assert.ok(isPlainInYaml(char.codePointAt(0) ?? 0), `raw U+${char.codePointAt(0)?.toString(16)}`);
        assert.deepEqual(JSON.parse(yaml), { text: text.toWellFormed() });
      },
    ),
  );
});

/** Printable by YAML 1.1 (5.1) and no line break but the line feed. */
function isPlainInYaml(code: number): boolean {
  if (code < 0x20) return code === 0x0a;
  if (code < 0xa0) return code < 0x7f;
  return code !== 0x2028 && code !== 0x2029 && code !== 0xfeff && code !== 0xfffe && code !== 0xffff && !(code >= 0xd800 && code < 0xe000);
}
