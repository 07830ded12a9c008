/** What the daemon says of itself and its host, for the API: version, checks, and the probe's report in its wire form. */
import { access, constants } from "node:fs/promises";
import type { HostReport as HostReportView, Readiness } from "@fluxvm/contracts";
import { KeyedQueue, type CallOptions } from "@fluxvm/core";
import { getProbe, probeHost, type HostHelper, type HostReport, type ProbeHostOptions } from "@fluxvm/host";
import type { HostService } from "@fluxvm/manager";

export interface HostServiceOptions {
  readonly version: string;
  readonly instanceId: string;
  readonly stateDir: string;
  readonly probe: HostProbe;
  readonly helper: HostHelper & { readonly pid: number | undefined };
}

export function createHostService(options: HostServiceOptions): HostService {
  const { version, instanceId, stateDir, probe, helper } = options;
  return {
    version: () => ({ version, api: "v1", instance_id: instanceId, pid: process.pid }),
    checks: async () => [await checkStateDir(stateDir), checkHelper(helper.pid)],
    report: async (call) => toHostReportView(await probe.report(call)),
  };
}

async function checkStateDir(stateDir: string): Promise<Readiness["checks"][number]> {
  try {
    await access(stateDir, constants.R_OK | constants.W_OK);
    return { name: "state_dir", ok: true };
  } catch (error) {
    return { name: "state_dir", ok: false, detail: `it cannot be written: ${(error as NodeJS.ErrnoException).code ?? "unknown"}` }; // node:fs rejects with these
  }
}

function checkHelper(pid: number | undefined): Readiness["checks"][number] {
  return pid === undefined ? { name: "host_helper", ok: false, detail: "it is being started again" } : { name: "host_helper", ok: true };
}

/** The probe of this host: one at a time, and its last report. */
export interface HostProbe {
  report(options: CallOptions & { readonly refresh: boolean }): Promise<HostReport>;
  kvmUsable(options: CallOptions): Promise<{ readonly usable: boolean; readonly reason?: string | undefined }>;
}

export function createHostProbe(settings: Omit<ProbeHostOptions, "signal" | "refresh">): HostProbe {
  const queue = new KeyedQueue({ boundPerKey: 16 });
  let last: HostReport | undefined;
  const report: HostProbe["report"] = async ({ signal, refresh }) => {
    if (last !== undefined && !refresh) return last;
    return await queue.run("probe", async () => {
      if (last === undefined || refresh) last = await probeHost({ ...settings, signal, refresh });
      return last;
    });
  };
  return {
    report,
    async kvmUsable({ signal }) {
      const kvm = getProbe(await report({ signal, refresh: false }), "kvm");
      return kvm.status === "works" ? { usable: true } : { usable: false, reason: kvm.detail };
    },
  };
}

export function toHostReportView(report: HostReport): HostReportView {
  return {
    boot_id: report.bootId,
    probed_at: new Date(report.probedAtMs).toISOString(),
    kernel: report.kernel,
    capabilities: report.results.map(({ name, status, detail, advice, data }) => ({
      name,
      status,
      detail,
      ...(advice === "" ? {} : { advice }),
      ...(data === undefined ? {} : { data: { ...data } }),
    })),
  };
}
