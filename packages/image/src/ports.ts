/** What this package needs of the host: programs by path or name, and bounds. */

export interface ImageTools {
  /** `fluxvm-host-helper`, whose `unpack` mode handles layers. */
  readonly hostHelper: string;
  /** The agent that becomes `/init` of a kernel's initrd. */
  readonly guestAgent: string;
  readonly skopeo: string;
  readonly mmdebstrap: string;
  readonly mke2fs: string;
  /** Environment of skopeo, which finds its users' auth files by it: HOME, XDG_RUNTIME_DIR, REGISTRY_AUTH_FILE, proxies. */
  readonly skopeoEnvironment?: Readonly<Record<string, string>>;
}

export interface ImageLimits {
  /** Bytes an image may unpack to; also the cap of a fetched disk. */
  readonly maxUnpackedBytes: number;
  readonly maxFiles: number;
  /** Deadline of one whole import. */
  readonly importTimeoutMs: number;
}
