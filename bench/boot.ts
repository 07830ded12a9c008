/**
 * Request to first agent reply: ours over HTTP, the same kernel, initrd and disk by a bare QEMU command line, and by
 * `virsh create`. Disks of the peers are made before their time is taken; ours makes its own within the request.
 */
import { compare, type Contender } from "./harness.ts";
import { connectAgent, endProcess, openLab, preparePeerVm, startBareQemu, VM_REQUEST, type Lab } from "./lab.ts";
import { Libvirt } from "./libvirt.ts";

export async function runBootBench(options: { readonly n: number }): Promise<void> {
  const lab = await openLab();
  let libvirt: Libvirt | undefined;
  try {
    libvirt = await Libvirt.open();
    if (libvirt === undefined)
      process.stderr.write("no libvirt here: install Debian's libvirt-daemon-system and libvirt-clients to compare with it\n");
    const peers = [bareQemu(lab), ...(libvirt === undefined ? [] : [virsh(lab, libvirt)])];
    await compare({ bench: "boot", case: "request-to-first-agent-reply", n: options.n, unit: "ms", ours: overHttp(lab), peers });
  } finally {
    await libvirt?.close();
    await lab.close();
  }
}

function overHttp(lab: Lab): Contender {
  return {
    name: "fluxvm",
    async run(round) {
      const { client } = lab.daemon;
      const name = `boot-${round}`;
      const start = performance.now();
      await client.vms.create({ name, ...VM_REQUEST });
      await client.vms.wait(name, ["ready"], { timeoutSeconds: 120 });
      await client.agent.ping(name);
      const elapsed = performance.now() - start;
      await client.vms.delete(name);
      return elapsed;
    },
  };
}

function bareQemu(lab: Lab): Contender {
  return {
    name: "bare-qemu",
    async run() {
      const vm = preparePeerVm(lab, "bare");
      const start = performance.now();
      const child = startBareQemu(lab, vm);
      try {
        const guest = await connectAgent(vm);
        const elapsed = performance.now() - start;
        guest.destroy();
        return elapsed;
      } finally {
        await endProcess(child);
      }
    },
  };
}

function virsh(lab: Lab, libvirt: Libvirt): Contender {
  return {
    name: "libvirt",
    async run(round) {
      const name = `fluxvm-bench-${process.pid}-${round}`;
      const vm = preparePeerVm(lab, name);
      const start = performance.now();
      libvirt.create(lab, vm, name);
      try {
        const guest = await connectAgent(vm);
        const elapsed = performance.now() - start;
        guest.destroy();
        return elapsed;
      } finally {
        libvirt.destroy(name);
      }
    },
  };
}
