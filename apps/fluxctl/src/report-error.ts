/** An error as the user reads it: one line that says what is wrong, and what to do next. */
import { ERROR_CATALOGUE, toErrorBody, type ErrorCode, type PlatformError } from "@fluxvm/core";
import type { OutputFormat } from "./output/printer.ts";
import { sanitise } from "./output/text.ts";

/** Where this program knows more of the next step than the catalogue does. */
const NEXT_STEPS: Partial<Record<ErrorCode, string>> = {
  DAEMON_UNREACHABLE: "Another daemon's address goes into --server or FLUXVM_SERVER.",
  VM_NOT_FOUND: "`fluxctl vm list` shows the VMs there are.",
  VM_NAME_TAKEN: "Choose another name, or `fluxctl vm delete` the other one.",
  VM_NOT_RUNNING: "`fluxctl vm start` or `fluxctl vm resume` it.",
  IMAGE_NOT_FOUND: "`fluxctl image list` shows the images there are; `fluxctl image import SOURCE` adds one.",
  IMAGE_IN_USE: "`fluxctl image get` shows which VMs use it.",
  KERNEL_NOT_FOUND: "`fluxctl kernel list` shows the kernels there are; `fluxctl kernel import debian:SUITE` adds one.",
  TOKEN_MISSING: "Set FLUXVM_TOKEN, or name the daemon's token file with --token-file.",
  TOKEN_INVALID: "The token is in the file `token` of the daemon's state directory; pass it with --token-file or FLUXVM_TOKEN.",
  AGENT_UNREACHABLE: "`fluxctl vm wait VM --for ready` waits for it; `fluxctl logs VM` shows the console.",
  WAIT_TIMEOUT: "`fluxctl vm get` shows its state and `fluxctl logs` its console; --timeout allows more time.",
  EXEC_NOT_FOUND: "`fluxctl execs VM` shows the commands there are.",
};

export function formatError(error: PlatformError, format: OutputFormat): string {
  if (format === "json") return `${JSON.stringify(toErrorBody(error))}\n`;
  const lines = [`fluxctl: ${sanitise(error.message)} (${error.code})`];
  for (const field of error.fields) {
    if (!error.message.includes(field.message)) lines.push(`  ${sanitise(field.path)}: ${sanitise(field.message)}`);
  }
  if (error.class !== "cancelled") lines.push(`  ${nextStep(error)}`);
  return `${lines.join("\n")}\n`;
}

function nextStep(error: PlatformError): string {
  if (error.code === "INTERNAL" && error.cause instanceof Error) return `Cause: ${sanitise(error.cause.message)}`;
  return NEXT_STEPS[error.code] ?? ERROR_CATALOGUE[error.code].help;
}
