/** A VM as the API shows it. Pure. */
import type { VmView } from "@fluxvm/contracts";
import {
  computeExpiryWallMs,
  computeRemainingMs,
  describeState,
  getProcessRecord,
  toVisiblePhase,
  type Now,
  type VmSnapshot,
} from "@fluxvm/engine";

export function toVmView(snapshot: VmSnapshot, now: Now): VmView {
  const { record, state, agent } = snapshot;
  const { spec, deadline } = record;
  const { reason, message } = describeState(state);
  const process = getProcessRecord(state);
  const phase = toVisiblePhase(state);
  return {
    id: record.id,
    name: record.name,
    state: phase === "gone" ? "deleting" : phase,
    ...(reason === undefined ? {} : { reason }),
    ...(message === undefined ? {} : { message }),
    backend: record.backend,
    ...(process === undefined ? {} : { machine: process.machine, accelerator: process.accelerator, pid: process.pid }),
    ...(spec.image === undefined ? {} : { image: { id: spec.image.id, name: spec.image.name } }),
    ...(spec.boot.kind === "kernel" ? { kernel: { id: spec.boot.kernel.id, name: spec.boot.kernel.name } } : {}),
    vcpus: spec.vcpus,
    memory_mib: spec.memoryMib,
    ...(spec.diskBytes === undefined ? {} : { disk_bytes: spec.diskBytes }),
    network: spec.network,
    agent: { enabled: spec.agent, state: agent.state, ...(agent.version === undefined ? {} : { version: agent.version }) },
    labels: { ...record.labels },
    created_at: toIso(record.createdAtWallMs),
    ...(record.startedAtWallMs === undefined ? {} : { started_at: toIso(record.startedAtWallMs) }),
    ...(state.phase === "stopped" || state.phase === "failed" ? { stopped_at: toIso(state.atWallMs) } : {}),
    ...(deadline === undefined
      ? {}
      : {
          expires_at: toIso(computeExpiryWallMs(deadline, now)),
          ttl_remaining_seconds: Math.max(0, Math.ceil(computeRemainingMs(deadline, now) / 1000)),
        }),
  };
}

function toIso(wallMs: number): string {
  return new Date(wallMs).toISOString();
}
