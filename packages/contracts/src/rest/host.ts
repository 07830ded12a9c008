/** What the daemon says of itself and its host. */
import { Type, type Static } from "typebox";

export const CapabilitySchema = Type.Object({
  name: Type.String(),
  status: Type.Union([Type.Literal("works"), Type.Literal("missing"), Type.Literal("broken")]),
  detail: Type.String({ description: "What was tried and what came of it" }),
  advice: Type.Optional(Type.String({ description: "What to do about it" })),
  data: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
});
export type Capability = Static<typeof CapabilitySchema>;

export const HostReportSchema = Type.Object(
  {
    boot_id: Type.String(),
    probed_at: Type.String({ format: "date-time" }),
    kernel: Type.String(),
    capabilities: Type.Array(CapabilitySchema),
  },
  { $id: "HostReport" },
);
export type HostReport = Static<typeof HostReportSchema>;

export const ReadinessSchema = Type.Object(
  {
    ok: Type.Boolean(),
    checks: Type.Array(Type.Object({ name: Type.String(), ok: Type.Boolean(), detail: Type.Optional(Type.String()) })),
  },
  { $id: "Readiness" },
);
export type Readiness = Static<typeof ReadinessSchema>;

export const ErrorBodySchema = Type.Object(
  {
    code: Type.String(),
    class: Type.String(),
    message: Type.String(),
    requestId: Type.Optional(Type.String()),
    fields: Type.Optional(Type.Array(Type.Object({ path: Type.String(), message: Type.String() }))),
  },
  { $id: "Error" },
);

export const VersionSchema = Type.Object(
  { version: Type.String(), api: Type.String(), instance_id: Type.String(), pid: Type.Integer() },
  { $id: "Version" },
);
export type Version = Static<typeof VersionSchema>;
