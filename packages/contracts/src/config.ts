/** The daemon's TOML file. Every key has a default; unknown keys are refused. Units are in the names. */
import { Type, type Static } from "typebox";

const closed = { additionalProperties: false } as const;

export const ConfigSchema = Type.Object(
  {
    listen: Type.Optional(
      Type.String({ default: "127.0.0.1:7788", description: "TCP address of the API, always behind a token; empty turns it off" }),
    ),
    socket: Type.Optional(
      Type.String({ default: "", description: "Unix socket of the API, mode 0660; empty means `<run_dir>/fluxvm.sock`" }),
    ),
    state_dir: Type.Optional(Type.String({ default: "/var/lib/fluxvm", description: "Everything that must outlive the daemon" })),
    run_dir: Type.Optional(
      Type.String({
        default: "",
        description: "Sockets; empty means `/run/fluxvm` for the default state directory, else `<state_dir>/run`",
      }),
    ),
    log: Type.Optional(
      Type.Object(
        {
          level: Type.Optional(
            Type.Enum(["trace", "debug", "info", "warn", "error"], { default: "info", description: "Least level of what is logged" }),
          ),
        },
        closed,
      ),
    ),
    api: Type.Optional(
      Type.Object(
        {
          max_body_bytes: Type.Optional(Type.Integer({ default: 4194304, minimum: 1024, description: "Largest JSON body" })),
          allowed_hosts: Type.Optional(
            Type.Array(Type.String({ minLength: 1, maxLength: 253 }), {
              default: [],
              maxItems: 64,
              description: "Host names, besides localhost and IP addresses, by which clients may address the TCP listener",
            }),
          ),
          body_timeout_ms: Type.Optional(
            Type.Integer({ default: 30000, minimum: 100, description: "Time a JSON body may take to arrive" }),
          ),
          stop_timeout_ms: Type.Optional(
            Type.Integer({ default: 10000, minimum: 0, description: "How long a stopping daemon waits for requests under way" }),
          ),
          request_timeout_ms: Type.Optional(
            Type.Integer({ default: 120000, minimum: 1000, description: "Deadline of a request that does not stream" }),
          ),
        },
        closed,
      ),
    ),
    vm: Type.Optional(
      Type.Object(
        {
          backend: Type.Optional(Type.Array(Type.String(), { default: ["qemu"], description: "Preference order of `backend: auto`" })),
          accel: Type.Optional(
            Type.Union([Type.Literal("auto"), Type.Literal("kvm"), Type.Literal("tcg")], {
              default: "auto",
              description: "Accelerator of VMs that ask for none; auto: kvm where it really works",
            }),
          ),
          disk_size_gib: Type.Optional(Type.Number({ default: 2, exclusiveMinimum: 0, description: "Least size of a VM's root disk" })),
          launch_timeout_ms: Type.Optional(Type.Integer({ default: 30000, minimum: 100, description: "Time a VMM may take to start" })),
          stop_timeout_ms: Type.Optional(
            Type.Integer({ default: 10000, minimum: 0, description: "Grace between the shutdown request and the kill" }),
          ),
          ready_timeout_ms: Type.Optional(Type.Integer({ default: 60000, minimum: 100, description: "Longest wait of ?ready=exec" })),
          console_log_max_bytes: Type.Optional(
            Type.Integer({ default: 1048576, minimum: 4096, description: "Size at which a console log is rotated; one old file is kept" }),
          ),
          uid_start: Type.Optional(
            Type.Integer({ default: 2000000, minimum: 1000, description: "First user id of the range VMs run under" }),
          ),
          uid_count: Type.Optional(
            Type.Integer({ default: 65536, minimum: 1, description: "Size of that range, and so the most VMs at a time" }),
          ),
          parallel_launches: Type.Optional(
            Type.Integer({ default: 8, minimum: 1, maximum: 256, description: "VMs being launched at once; more wait" }),
          ),
          max_vcpus: Type.Optional(Type.Integer({ default: 64, minimum: 1, description: "Most virtual CPUs a VM may ask for" })),
          max_memory_mib: Type.Optional(Type.Integer({ default: 262144, minimum: 16, description: "Most memory a VM may ask for" })),
        },
        closed,
      ),
    ),
    image: Type.Optional(
      Type.Object(
        {
          max_unpacked_gib: Type.Optional(
            Type.Number({ default: 32, exclusiveMinimum: 0, description: "An OCI image that unpacks to more is refused" }),
          ),
          max_files: Type.Optional(Type.Integer({ default: 2000000, minimum: 1, description: "An OCI image with more files is refused" })),
          fetch_timeout_ms: Type.Optional(Type.Integer({ default: 3600000, minimum: 1000, description: "Longest download of one image" })),
          parallel_imports: Type.Optional(
            Type.Integer({ default: 2, minimum: 1, maximum: 64, description: "Imports at a time; others wait" }),
          ),
        },
        closed,
      ),
    ),
    tools: Type.Optional(
      Type.Object(
        {
          qemu: Type.Optional(
            Type.String({ default: "qemu-system-x86_64", description: "Programs: a name to look up, or an absolute path" }),
          ),
          qemu_img: Type.Optional(Type.String({ default: "qemu-img", description: "Looks at and converts disks" })),
          skopeo: Type.Optional(Type.String({ default: "skopeo", description: "Fetches from registries" })),
          mmdebstrap: Type.Optional(Type.String({ default: "mmdebstrap", description: "Builds Debian images" })),
          mke2fs: Type.Optional(Type.String({ default: "mke2fs", description: "Makes file systems" })),
          nft: Type.Optional(Type.String({ default: "nft", description: "Keeps guests from the host's network" })),
          ovmf_code: Type.Optional(Type.String({ default: "/usr/share/OVMF/OVMF_CODE_4M.fd", description: "UEFI firmware" })),
          ovmf_vars: Type.Optional(
            Type.String({ default: "/usr/share/OVMF/OVMF_VARS_4M.fd", description: "Its variables, copied for each VM" }),
          ),
          host_helper: Type.Optional(Type.String({ default: "", description: "Empty: the one built with this version" })),
          guest_agent: Type.Optional(Type.String({ default: "", description: "Empty: the one built with this version" })),
        },
        closed,
      ),
    ),
  },
  { ...closed, $id: "Config" },
);
export type ConfigInput = Static<typeof ConfigSchema>;

type Complete<T> = T extends readonly unknown[] ? T : T extends object ? { readonly [K in keyof T]-?: Complete<NonNullable<T[K]>> } : T;
/** The configuration with every default filled in, as the daemon passes it down in slices. */
export type Config = Complete<ConfigInput>;
