/** What a backend can do, as data: behaviour is chosen by these, never by a backend's name. */
export interface BackendCapabilities {
  readonly accelerators: readonly ("kvm" | "tcg")[];
  readonly boot: readonly ("kernel" | "firmware")[];
  readonly firmware: readonly ("uefi" | "bios")[];
  readonly diskFormats: readonly ("raw" | "qcow2")[];
  readonly networkModes: readonly string[];
  readonly agentTransports: readonly ("virtio-serial" | "vsock")[];
  readonly pause: boolean;
  readonly snapshot: boolean;
  readonly migrate: boolean;
  readonly hotplugCpu: boolean;
  readonly hotplugMemory: boolean;
  readonly maxVcpus: number;
}

export type BackendProbe =
  | {
      readonly usable: true;
      readonly version: string;
      readonly accelerator: "kvm" | "tcg";
      /** Why `auto` did not choose kvm, if so. */ readonly note?: string | undefined;
    }
  | { readonly usable: false; readonly reason: string; readonly advice?: string | undefined };
