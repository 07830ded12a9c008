/** What the guest says in WELCOME, REFUSED and RESET, taken apart with suspicion: the bytes are the guest's. */
import { isErrorCode, PlatformError } from "@fluxvm/core";

/** The agent's answer to HELLO. */
export interface Welcome {
  readonly version: number;
  /** Differs each time the agent starts. */
  readonly agentInstanceId: string;
  readonly agentVersion: string;
  readonly bootId: string;
  readonly vmId: string;
  readonly uptimeMs: number;
  readonly capabilities: readonly string[];
}

const MAX_TEXT = 256;
const MAX_MESSAGE = 4096;
const MAX_CAPABILITIES = 64;

function parseObject(payload: Uint8Array): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload));
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>; // checked just now
  } catch {
    // falls through: said below
  }
  throw new PlatformError("AGENT_PROTOCOL", "The guest agent sent a message that is no JSON object");
}

/** @throws PlatformError `AGENT_PROTOCOL` */
export function parseWelcome(payload: Uint8Array): Welcome {
  const fields = parseObject(payload);
  const text = (name: string): string => {
    const value = fields[name];
    if (typeof value === "string" && value.length <= MAX_TEXT) return value;
    throw new PlatformError("AGENT_PROTOCOL", `The guest agent's answer has a wrong ${name}`);
  };
  const count = (name: string): number => {
    const value = fields[name];
    if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return value;
    throw new PlatformError("AGENT_PROTOCOL", `The guest agent's answer has a wrong ${name}`);
  };
  const capabilities = Array.isArray(fields["capabilities"]) ? fields["capabilities"] : [];
  return {
    version: count("version"),
    agentInstanceId: text("agentInstanceId"),
    agentVersion: text("agentVersion"),
    bootId: text("bootId"),
    vmId: text("vmId"),
    uptimeMs: count("uptimeMs"),
    capabilities: capabilities.filter((c): c is string => typeof c === "string" && c.length <= MAX_TEXT).slice(0, MAX_CAPABILITIES),
  };
}

/** An error the guest sent. Codes that no guest can know of become `AGENT_PROTOCOL`. */
export function toGuestFailure(error: unknown): PlatformError {
  const { code, message } = (typeof error === "object" && error !== null ? error : {}) as { code?: unknown; message?: unknown }; // both are checked next
  const text = typeof message === "string" ? message.slice(0, MAX_MESSAGE) : "The guest agent refused without a reason";
  if (typeof code !== "string" || !isErrorCode(code) || !/^(GUEST_|EXEC_|AGENT_|REQUEST_|FIELD_|QUEUE_FULL$|INTERNAL$)/.test(code)) {
    return new PlatformError("AGENT_PROTOCOL", text);
  }
  return new PlatformError(code, text);
}

export function parseFailure(payload: Uint8Array): PlatformError {
  return toGuestFailure(parseObject(payload));
}
