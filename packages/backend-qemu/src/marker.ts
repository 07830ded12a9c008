/**
 * How a QEMU process says whose it is: an argument that is visible in /proc/PID/cmdline, so that processes without a
 * record are found by listing. `-name guest=fluxvm/<instance>/<vm>`.
 */

const PREFIX = "guest=fluxvm/";
const ID = /^[a-z]+-[0-9a-z]{1,64}$/;

export interface Marker {
  readonly instanceId: string;
  readonly vmId: string;
}

export function isMarkerId(id: string): boolean {
  return ID.test(id);
}

export function formatMarker(marker: Marker): string {
  return `${PREFIX}${marker.instanceId}/${marker.vmId}`;
}

/** The marker in a NUL-separated command line as the kernel shows it; `undefined` when it is not one of ours. */
export function findMarker(cmdline: string): Marker | undefined {
  const words = cmdline.split("\0");
  const at = words.indexOf("-name");
  const word = at < 1 ? undefined : words[at + 1];
  if (word === undefined || !word.startsWith(PREFIX)) return undefined;
  const [instanceId = "", vmId = "", ...rest] = word.slice(PREFIX.length).split("/");
  return rest.length === 0 && isMarkerId(instanceId) && isMarkerId(vmId) ? { instanceId, vmId } : undefined;
}
