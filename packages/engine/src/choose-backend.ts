/**
 * Which backend runs a VM: one pure function over what backends say they can do. Nothing here knows any of them.
 */
import { findNearest, PlatformError } from "@fluxvm/core";
import type { BackendCapabilities, BackendProbe } from "@fluxvm/vmm";

export interface BackendCandidate {
  readonly name: string;
  readonly capabilities: BackendCapabilities;
  readonly probe: BackendProbe;
}

export interface BackendNeeds {
  readonly boot: "kernel" | "firmware";
  readonly firmware?: "uefi" | "bios" | undefined;
  readonly networkMode: string;
  readonly accel: "auto" | "kvm" | "tcg";
  readonly agent: boolean;
  readonly vcpus: number;
  readonly disk: boolean;
}

export interface BackendRequest {
  /** A name, or `auto`. */
  readonly requested: string;
  /** Order in which `auto` tries. */
  readonly preference: readonly string[];
  readonly needs: BackendNeeds;
}

/** @throws PlatformError `BACKEND_UNKNOWN`, `BACKEND_UNAVAILABLE`, `BACKEND_UNSUPPORTED`. */
export function chooseBackend(request: BackendRequest, candidates: readonly BackendCandidate[]): string {
  if (request.requested !== "auto") return requireBackend(request, candidates);
  const refusals: string[] = [];
  let unsupported = false;
  for (const name of request.preference) {
    const candidate = candidates.find((c) => c.name === name);
    if (candidate === undefined) continue;
    const lack = findLack(candidate, request.needs);
    if (lack === undefined) return name;
    unsupported ||= candidate.probe.usable;
    refusals.push(`${name}: ${lack}`);
  }
  const why = refusals.length === 0 ? "none is configured" : refusals.join("; ");
  throw new PlatformError(unsupported ? "BACKEND_UNSUPPORTED" : "BACKEND_UNAVAILABLE", `No backend can run this VM: ${why}`);
}

function requireBackend(request: BackendRequest, candidates: readonly BackendCandidate[]): string {
  const name = request.requested;
  const candidate = candidates.find((c) => c.name === name);
  if (candidate === undefined) {
    const nearest = findNearest(
      name,
      candidates.map((c) => c.name),
    );
    const hint = nearest === undefined ? "" : `, did you mean "${nearest}"`;
    throw new PlatformError("BACKEND_UNKNOWN", `There is no backend "${name}"${hint}`, {
      fields: [{ path: "backend", message: "unknown" }],
    });
  }
  const lack = findLack(candidate, request.needs);
  if (lack === undefined) return name;
  throw new PlatformError(
    candidate.probe.usable ? "BACKEND_UNSUPPORTED" : "BACKEND_UNAVAILABLE",
    `Backend "${name}" cannot run this VM: ${lack}`,
  );
}

/** What the candidate lacks, as half a sentence; `undefined` when it can. */
function findLack(candidate: BackendCandidate, needs: BackendNeeds): string | undefined {
  const { capabilities, probe } = candidate;
  if (!probe.usable) return probe.advice === undefined ? probe.reason : `${probe.reason} (${probe.advice})`;
  if (!capabilities.boot.includes(needs.boot)) return `it cannot boot by ${needs.boot}`;
  if (needs.firmware !== undefined && !capabilities.firmware.includes(needs.firmware)) return `it has no ${needs.firmware} firmware`;
  if (!capabilities.networkModes.includes(needs.networkMode)) return `it has no network mode "${needs.networkMode}"`;
  if (needs.disk && !capabilities.diskFormats.includes("qcow2")) return "it cannot read qcow2 overlays";
  if (needs.agent && capabilities.agentTransports.length === 0) return "it has no channel for the guest agent";
  if (needs.vcpus > capabilities.maxVcpus) return `it has at most ${capabilities.maxVcpus} vCPUs`;
  if (needs.accel !== "auto" && !capabilities.accelerators.includes(needs.accel)) return `it has no accelerator "${needs.accel}"`;
  if (needs.accel === "kvm" && probe.accelerator !== "kvm") return probe.note ?? "KVM is not usable on this host";
  return undefined;
}
