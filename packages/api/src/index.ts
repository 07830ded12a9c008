export type {
  ExecAttachment,
  ExecOutput,
  GuestOperations,
  HostOperations,
  ImageOperations,
  KernelOperations,
  Platform,
  VmOperations,
} from "./platform.ts";
