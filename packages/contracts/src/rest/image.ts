/** Images and kernels: separate objects, so that one kernel serves every image. */
import { Type, type Static } from "typebox";

const OBJECT_NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._:/@+,=-]{0,254}$";

/** The part of an OCI image configuration that is kept and honoured. */
export const ImageConfigSchema = Type.Object({
  entrypoint: Type.Array(Type.String()),
  cmd: Type.Array(Type.String()),
  env: Type.Array(Type.String(), { description: "KEY=value" }),
  user: Type.String(),
  working_dir: Type.String(),
  stop_signal: Type.String(),
  labels: Type.Record(Type.String(), Type.String()),
});
export type ImageConfig = Static<typeof ImageConfigSchema>;

export const CreateImageRequestSchema = Type.Object(
  {
    source: Type.String({
      minLength: 1,
      maxLength: 4096,
      description:
        "`oci:DIR[:TAG]`, `oci-archive:FILE[:TAG]`, `docker://REF`, `debian:SUITE[+package,…]`, an absolute path or an http(s) URL of a raw or qcow2 disk",
    }),
    name: Type.Optional(Type.String({ pattern: OBJECT_NAME_PATTERN, description: "Name to refer to it by; default: the source" })),
    sha256: Type.Optional(
      Type.String({ pattern: "^[0-9a-f]{64}$", description: "Required for http(s) disks: the file must have this digest" }),
    ),
    size_gib: Type.Optional(
      Type.Number({ exclusiveMinimum: 0, maximum: 65536, description: "Least size of the file system made from an OCI or Debian source" }),
    ),
  },
  { additionalProperties: false, $id: "CreateImageRequest" },
);
export type CreateImageRequest = Static<typeof CreateImageRequestSchema>;

export const ProgressSchema = Type.Object({
  phase: Type.String({ description: "fetching, verifying, unpacking, building, converting, finishing" }),
  done_bytes: Type.Integer(),
  total_bytes: Type.Optional(Type.Integer()),
  message: Type.Optional(Type.String()),
});
export type Progress = Static<typeof ProgressSchema>;

const ImportErrorSchema = Type.Object({ code: Type.String(), message: Type.String() });

export const ImageViewSchema = Type.Object(
  {
    id: Type.String(),
    name: Type.String(),
    source: Type.String(),
    state: Type.Union([Type.Literal("importing"), Type.Literal("ready"), Type.Literal("failed")]),
    progress: Type.Optional(ProgressSchema),
    error: Type.Optional(ImportErrorSchema),
    digest: Type.Optional(Type.String({ description: "sha256:… over every input that shaped the disk" })),
    kind: Type.Optional(
      Type.Union([Type.Literal("rootfs"), Type.Literal("disk")], {
        description: "rootfs: a bare ext4 file system; disk: may carry partitions and a boot loader",
      }),
    ),
    format: Type.Optional(Type.Union([Type.Literal("raw"), Type.Literal("qcow2")])),
    virtual_size_bytes: Type.Optional(Type.Integer()),
    stored_bytes: Type.Optional(Type.Integer()),
    config: Type.Optional(ImageConfigSchema),
    used_by: Type.Array(Type.String(), { description: "Ids of VMs that hold a lease" }),
    created_at: Type.String({ format: "date-time" }),
  },
  { $id: "Image" },
);
export type ImageView = Static<typeof ImageViewSchema>;

export const CreateKernelRequestSchema = Type.Object(
  {
    source: Type.String({
      minLength: 1,
      maxLength: 4096,
      description: "`debian:SUITE` (linux-image-cloud of the host's own sources), or an absolute path of a bzImage or PVH ELF",
    }),
    modules: Type.Optional(
      Type.String({ pattern: "^/", maxLength: 4096, description: "For a bzImage: the directory `lib/modules/VERSION` that belongs to it" }),
    ),
    name: Type.Optional(
      Type.String({ pattern: OBJECT_NAME_PATTERN, description: "Default: the kernel's release; the first one is also `default`" }),
    ),
    initrd: Type.Optional(Type.Boolean({ default: true, description: "false: no initrd and so no agent, for bare payloads" })),
  },
  { additionalProperties: false, $id: "CreateKernelRequest" },
);
export type CreateKernelRequest = Static<typeof CreateKernelRequestSchema>;

export const KernelViewSchema = Type.Object(
  {
    id: Type.String(),
    name: Type.String(),
    source: Type.String(),
    state: Type.Union([Type.Literal("importing"), Type.Literal("ready"), Type.Literal("failed")]),
    progress: Type.Optional(ProgressSchema),
    error: Type.Optional(ImportErrorSchema),
    is_default: Type.Boolean(),
    release: Type.Optional(Type.String({ description: "Kernel release, for example 6.1.0-40-cloud-amd64" })),
    digest: Type.Optional(Type.String({ description: "sha256:… over kernel, initrd and agent" })),
    has_agent: Type.Boolean({ description: "Whether its initrd carries the guest agent" }),
    stored_bytes: Type.Optional(Type.Integer()),
    used_by: Type.Array(Type.String()),
    created_at: Type.String({ format: "date-time" }),
  },
  { $id: "Kernel" },
);
export type KernelView = Static<typeof KernelViewSchema>;
