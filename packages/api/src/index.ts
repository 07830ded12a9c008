export { createApi, type ApiOptions } from "./api.ts";
export { createTokenAuthenticator, type Authenticator, type AuthRequest, type Identity, type ListenerKind } from "./auth.ts";
export type { Api, ApiLimits } from "./context.ts";
export { buildOpenApiDocument } from "./document.ts";
export { closeApiServer, createApiServer } from "./http-server.ts";
export { METRICS } from "./metrics.ts";
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
