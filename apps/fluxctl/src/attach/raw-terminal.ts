/**
 * The terminal in raw mode: every key goes to the guest. It is put back however the process ends, since a terminal
 * left raw is useless to the shell that comes after.
 */
import { PlatformError } from "@fluxvm/core";
import type { Environment } from "../environment.ts";

export function isTerminal(environment: Environment): boolean {
  return environment.stdin.isTTY === true && environment.stdout.isTTY === true;
}

/** Size of the terminal the output goes to. One that was never told its size (a serial line, script(1), CI) says 0. */
export function terminalSize(environment: Environment): { readonly rows: number; readonly cols: number } {
  const { rows = 0, columns = 0 } = environment.stdout;
  return { rows: rows > 0 ? rows : 24, cols: columns > 0 ? columns : 80 };
}

/** @throws PlatformError `NOT_A_TERMINAL` */
export function requireTerminalInput(environment: Environment): void {
  if (environment.stdin.isTTY === true && environment.stdin.setRawMode !== undefined) return;
  throw new PlatformError("NOT_A_TERMINAL", "Cannot use --tty: standard input is not a terminal");
}

/** Enters raw mode; the result restores, and may be called more than once. @throws PlatformError `NOT_A_TERMINAL` */
export function enterRawMode(environment: Environment): () => void {
  requireTerminalInput(environment);
  const { stdin } = environment;
  stdin.setRawMode?.(true);
  let isRaw = true;
  const restore = (): void => {
    if (!isRaw) return;
    isRaw = false;
    stdin.setRawMode?.(false);
  };
  const release = environment.onExit(restore);
  return () => {
    restore();
    release();
  };
}
