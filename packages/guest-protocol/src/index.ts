export { ExecAttachment, type ExecOutput } from "./exec-attachment.ts";
export { ExecClient, type AttachOffsets } from "./exec-client.ts";
export type { ExecCommand, ExecExitStatus, ExecStatus, RetainedRange } from "./exec-types.ts";
export { FileClient, type WriteAttributes } from "./file-client.ts";
export type { GuestDiskUsage, GuestFileEvent, GuestFileStat, GuestFileType } from "./file-types.ts";
export { createGuestClient, type GuestAgent, type GuestClientOptions, type GuestDetails, type GuestInfo } from "./guest-client.ts";
export {
  encodeGuestConfigDisk,
  GUEST_AGENT_PORT_NAME,
  GUEST_AGENT_VSOCK_PORT,
  GUEST_CONFIG_DISK_SERIAL,
  GUEST_ROOT_DISK_SERIAL,
  type GuestConfig,
  type GuestNetwork,
  type GuestWorkload,
} from "./guest-config.ts";
export { MAX_STDIN_BYTES } from "./limits.ts";
export type { GuestEndpoint, GuestLinkState, OpenVsock } from "@fluxvm/guest-channel";
