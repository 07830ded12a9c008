/** Which cgroup hierarchies the host has, out of /proc/self/mountinfo. Pure. */

/** The controllers a VM's limits need. */
export const CONTROLLERS = ["memory", "cpu", "cpuacct", "pids", "freezer"] as const;
export type Controller = (typeof CONTROLLERS)[number];

export interface CgroupLayout {
  /** `hybrid`: controllers on v1 beside an empty v2 mount, whose `cgroup.kill` is used all the same. */
  readonly mode: "v1" | "v2" | "hybrid" | "none";
  /** Mount points of v1 by controller. */
  readonly v1: Readonly<Partial<Record<Controller, string>>>;
  readonly v2: string | undefined;
  /** systemd's own v1 hierarchy: a process left in a service's folder there is killed with the service. */
  readonly systemd: string | undefined;
}

export function parseCgroupMounts(mountinfo: string): CgroupLayout {
  const v1: Partial<Record<Controller, string>> = {};
  let v2: string | undefined;
  let systemd: string | undefined;
  for (const line of mountinfo.split("\n")) {
    const [left = "", right = ""] = line.split(" - ");
    const point = left.split(" ")[4]?.replaceAll("\\040", " ");
    const [type, , options = ""] = right.split(" ");
    if (point === undefined) continue;
    if (type === "cgroup2") v2 ??= point;
    if (type !== "cgroup") continue;
    if (options.split(",").includes("name=systemd")) systemd ??= point;
    for (const controller of CONTROLLERS) {
      if (options.split(",").includes(controller)) v1[controller] ??= point;
    }
  }
  const hasV1 = Object.keys(v1).length > 0;
  const mode = hasV1 ? (v2 === undefined ? "v1" : "hybrid") : v2 === undefined ? "none" : "v2";
  return { mode, v1, v2, systemd };
}
