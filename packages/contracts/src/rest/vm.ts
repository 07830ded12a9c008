/** The VM resource: what a client sends to create one and what it reads back. Field names follow the reference API. */
import { Type, type Static } from "typebox";

const NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$";
const LABEL_KEY_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$";

export const VmNameSchema = Type.String({
  pattern: NAME_PATTERN,
  description: "1 to 63 of A-Z a-z 0-9 . _ - and starting with a letter or digit; unique on the host",
});
export const LabelsSchema = Type.Record(Type.String({ pattern: LABEL_KEY_PATTERN }), Type.String({ maxLength: 255 }), {
  description: "Free key/value pairs to select by; at most 64",
  maxProperties: 64,
  additionalProperties: false,
});

export const PortForwardSchema = Type.Object(
  {
    host_port: Type.Integer({ minimum: 1, maximum: 65535 }),
    guest_port: Type.Integer({ minimum: 1, maximum: 65535 }),
    protocol: Type.Optional(Type.Union([Type.Literal("tcp"), Type.Literal("udp")], { default: "tcp" })),
    host_address: Type.Optional(Type.String({ default: "127.0.0.1", description: "IPv4 address of the host to listen on" })),
  },
  { additionalProperties: false },
);

export const NetworkSchema = Type.Union(
  [
    Type.Object({ mode: Type.Literal("none") }, { additionalProperties: false }),
    Type.Object(
      {
        mode: Type.Literal("user"),
        forwards: Type.Optional(Type.Array(PortForwardSchema, { maxItems: 64, default: [] })),
        allow_cidrs: Type.Optional(
          Type.Array(Type.String({ maxLength: 64 }), {
            maxItems: 64,
            default: [],
            description: "Private, link-local or loopback networks the guest may reach besides the public internet",
          }),
        ),
      },
      { additionalProperties: false },
    ),
  ],
  { description: "`user` (default): outgoing connections through the host, nothing to configure; `none`: no network device" },
);

export const CloudInitSchema = Type.Object(
  {
    hostname: Type.Optional(Type.String({ pattern: "^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\\.[A-Za-z0-9-]{1,63})*$" })),
    user: Type.Optional(Type.String({ pattern: "^[a-z_][a-z0-9_-]{0,31}$", description: "User to create, with sudo and the keys below" })),
    ssh_authorized_keys: Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: 16384 }), { maxItems: 64 })),
    packages: Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: 255 }), { maxItems: 256 })),
    runcmd: Type.Optional(Type.Array(Type.Union([Type.String(), Type.Array(Type.String())]), { maxItems: 256 })),
    write_files: Type.Optional(
      Type.Array(
        Type.Object(
          {
            path: Type.String({ pattern: "^/", maxLength: 4096 }),
            content: Type.String({ maxLength: 1048576 }),
            permissions: Type.Optional(Type.String({ pattern: "^0?[0-7]{3,4}$" })),
            owner: Type.Optional(Type.String({ maxLength: 64 })),
          },
          { additionalProperties: false },
        ),
        { maxItems: 256 },
      ),
    ),
    user_data: Type.Optional(Type.String({ maxLength: 1048576, description: "Raw user-data; excludes the fields above except hostname" })),
  },
  { additionalProperties: false },
);

export const WorkloadSchema = Type.Object(
  {
    entrypoint: Type.Optional(
      Type.Array(Type.String(), { maxItems: 256, description: "Replaces the image's entrypoint; an empty list drops it" }),
    ),
    command: Type.Optional(Type.Array(Type.String(), { maxItems: 1024, description: "Replaces the image's cmd" })),
    env: Type.Optional(
      Type.Record(Type.String({ pattern: "^[^=\\u0000]+$" }), Type.String(), { description: "Added to the image's environment" }),
    ),
    user: Type.Optional(Type.String({ maxLength: 255 })),
    working_dir: Type.Optional(Type.String({ pattern: "^/", maxLength: 4096 })),
    enabled: Type.Optional(Type.Boolean({ default: true, description: "false: boot the image without running its entrypoint" })),
  },
  { additionalProperties: false, description: "Changes to what the image runs, where the agent is init" },
);

export const CreateVmRequestSchema = Type.Object(
  {
    name: VmNameSchema,
    backend: Type.Optional(Type.String({ default: "auto", maxLength: 63, description: "VMM backend, or `auto`" })),
    image: Type.Optional(
      Type.String({ maxLength: 1024, description: "Id, name or digest of an image of this host; without one the VM has no disk" }),
    ),
    vcpus: Type.Optional(Type.Integer({ minimum: 1, maximum: 254, default: 1 })),
    memory_mib: Type.Optional(Type.Integer({ minimum: 16, maximum: 4194304, default: 512 })),
    disk_size_gib: Type.Optional(
      Type.Number({
        exclusiveMinimum: 0,
        maximum: 65536,
        description: "Size of the root disk; grow only. Default: the image's size, at least [vm] disk_size_gib",
      }),
    ),
    kernel: Type.Optional(
      Type.String({ maxLength: 1024, description: "Id or name of a kernel of this host; default: the one called `default`" }),
    ),
    kernel_args: Type.Optional(Type.String({ maxLength: 2048, description: "Appended to the kernel command line" })),
    firmware: Type.Optional(
      Type.Union([Type.Literal("none"), Type.Literal("uefi"), Type.Literal("bios")], {
        description: "`uefi` or `bios`: the disk's own boot loader starts; `none`: direct kernel boot. Default: by the image",
      }),
    ),
    init: Type.Optional(
      Type.Union([Type.Literal("auto"), Type.Literal("agent"), Type.Literal("image")], {
        default: "auto",
        description:
          "Who is PID 1 after a direct kernel boot: the image's init if it has one (`auto`), always the agent, or always the image's",
      }),
    ),
    accel: Type.Optional(Type.Union([Type.Literal("auto"), Type.Literal("kvm"), Type.Literal("tcg")], { default: "auto" })),
    network: Type.Optional(NetworkSchema),
    cloud_init: Type.Optional(CloudInitSchema),
    workload: Type.Optional(WorkloadSchema),
    agent: Type.Optional(Type.Object({ enabled: Type.Optional(Type.Boolean({ default: true })) }, { additionalProperties: false })),
    ttl_seconds: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 315360000, description: "The VM is deleted this long after its creation" }),
    ),
    labels: Type.Optional(LabelsSchema),
  },
  { additionalProperties: false, $id: "CreateVmRequest" },
);
export type CreateVmRequest = Static<typeof CreateVmRequestSchema>;
export type NetworkSpec = Static<typeof NetworkSchema>;
export type PortForward = Static<typeof PortForwardSchema>;
export type CloudInitSpec = Static<typeof CloudInitSchema>;
export type WorkloadSpec = Static<typeof WorkloadSchema>;
export type Labels = Record<string, string>;

/** Fields of the specification, by their dotted path, that this version does not serve yet: refused by name with `FIELD_UNSUPPORTED`. */
export const UNSERVED_VM_FIELDS: readonly string[] = [
  "tenant",
  "created_by_token",
  "max_vcpus",
  "max_memory_mib",
  "initrd",
  "loadvm_tag",
  "extra_args",
  "shared_memory",
  "qga",
  "hyperv",
  "storage",
  "shared_folders",
  "data_disks",
  "cdroms",
  "numa_node",
  "cpuset",
  "hugepages",
  "vfio_devices",
  "pod_uid",
  "secure_boot",
  "tpm",
  "security_profile",
  "measurement_policy",
  "net_mbit_limit",
  "net_pps_limit",
  "blk_mbit_limit",
  "blk_ops_limit",
  "cpu_template",
  "autostart",
  "agent.port",
  "agent.token",
  "cloud_init.static_network",
];

/** Modes of `network` of the specification that this version does not serve yet, refused likewise. */
export const UNSERVED_NETWORK_MODES: readonly string[] = ["tap", "macvtap"];

export const PatchVmRequestSchema = Type.Object(
  {
    name: Type.Optional(VmNameSchema),
    labels: Type.Optional(
      Type.Record(Type.String({ pattern: LABEL_KEY_PATTERN }), Type.Union([Type.String({ maxLength: 255 }), Type.Null()]), {
        description: "Merged into the labels; null removes a key",
        maxProperties: 64,
        additionalProperties: false,
      }),
    ),
    ttl_seconds: Type.Optional(
      Type.Union([Type.Integer({ minimum: 1, maximum: 315360000 }), Type.Null()], {
        description: "New time to live, counted from now; null removes it",
      }),
    ),
  },
  { additionalProperties: false, $id: "PatchVmRequest" },
);
export type PatchVmRequest = Static<typeof PatchVmRequestSchema>;

export const StopVmRequestSchema = Type.Object(
  {
    timeout_seconds: Type.Optional(
      Type.Number({
        minimum: 0,
        maximum: 3600,
        description: "How long the guest may take before it is killed; default [vm] stop_timeout_ms",
      }),
    ),
    force: Type.Optional(Type.Boolean({ default: false, description: "Kill at once" })),
  },
  { additionalProperties: false, $id: "StopVmRequest" },
);
export type StopVmRequest = Static<typeof StopVmRequestSchema>;

export const VM_STATES = ["creating", "starting", "running", "paused", "stopping", "stopped", "failed", "deleting"] as const;
export type VmStateName = (typeof VM_STATES)[number];

export const VmViewSchema = Type.Object(
  {
    id: Type.String(),
    name: Type.String(),
    state: Type.Unsafe<VmStateName>(Type.Union(VM_STATES.map((s) => Type.Literal(s)))), // the map loses the literals
    reason: Type.Optional(
      Type.String({
        description: "Why it is in this state, for stopped and failed: a short word such as guest_shutdown, killed, host_rebooted",
      }),
    ),
    message: Type.Optional(Type.String({ description: "One sentence for people about the reason" })),
    backend: Type.String(),
    machine: Type.Optional(Type.String({ description: "Machine model in use, while it runs" })),
    accelerator: Type.Optional(Type.Union([Type.Literal("kvm"), Type.Literal("tcg")])),
    pid: Type.Optional(Type.Integer({ description: "Process id of the VMM, while there is one" })),
    image: Type.Optional(Type.Object({ id: Type.String(), name: Type.String() })),
    kernel: Type.Optional(Type.Object({ id: Type.String(), name: Type.String() })),
    vcpus: Type.Integer(),
    memory_mib: Type.Integer(),
    disk_bytes: Type.Optional(Type.Integer({ description: "Virtual size of the root disk" })),
    network: NetworkSchema,
    agent: Type.Object({
      enabled: Type.Boolean(),
      state: Type.Union([Type.Literal("disabled"), Type.Literal("connecting"), Type.Literal("ready"), Type.Literal("lost")]),
      version: Type.Optional(Type.String()),
    }),
    labels: Type.Record(Type.String(), Type.String()),
    created_at: Type.String({ format: "date-time" }),
    started_at: Type.Optional(Type.String({ format: "date-time" })),
    stopped_at: Type.Optional(Type.String({ format: "date-time" })),
    expires_at: Type.Optional(Type.String({ format: "date-time" })),
    ttl_remaining_seconds: Type.Optional(Type.Integer()),
    first_command_ms: Type.Optional(Type.Number({ description: "With ?ready=exec: request to the end of the first command in the guest" })),
    phases: Type.Optional(
      Type.Object(
        { create_done_ms: Type.Number(), agent_wait_ms: Type.Number(), first_exec_ms: Type.Number() },
        { description: "With ?ready=exec: where the time went, in milliseconds" },
      ),
    ),
  },
  { $id: "Vm" },
);
export type VmView = Static<typeof VmViewSchema>;
