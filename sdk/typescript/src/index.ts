export { createClient, type AgentClient, type Client } from "./client.ts";
export type { ExecClient } from "./exec/exec-client.ts";
export { ExecSession, type AttachOptions, type ExecOutputChunk } from "./exec/exec-session.ts";
export type { OutputStream } from "./exec/frames.ts";
export type { FileClient, FileContent, GuestFile, WriteFileOptions } from "./files.ts";
export type { HostClient } from "./host.ts";
export type { ImageClient, KernelClient, ObjectClient } from "./objects.ts";
export { parseServerAddress, type ServerAddress } from "./server-address.ts";
export type { TransportOptions as ClientOptions } from "./transport.ts";
export type { Call, ListVmsQuery, ReadyCall, VmClient, WaitTarget } from "./vms.ts";
export { fromErrorBody, isPlatformError, PlatformError, toPlatformError } from "@fluxvm/contracts";
export type {
  AgentExecRequest,
  AgentExecResult,
  Capability,
  CreateExecRequest,
  CreateImageRequest,
  CreateKernelRequest,
  CreateVmRequest,
  ErrorClass,
  ErrorCode,
  ExecExit,
  ExecView,
  FileEvent,
  FileStat,
  HostReport,
  ImageConfig,
  ImageView,
  KernelView,
  NetworkSpec,
  PatchVmRequest,
  Progress,
  Readiness,
  StopVmRequest,
  Version,
  VmStateName,
  VmView,
  WorkloadSpec,
} from "@fluxvm/contracts";
