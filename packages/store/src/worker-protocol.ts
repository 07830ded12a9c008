/** What the store and its worker thread say to each other. Values travel as JSON text. */
import { assert } from "@fluxvm/core";
import type { StoreChange } from "./store.ts";

export type WireChange =
  | {
      readonly kind: "put";
      readonly collection: string;
      readonly key: string;
      readonly json: string;
      readonly expectedVersion: number | undefined;
    }
  | { readonly kind: "delete"; readonly collection: string; readonly key: string }
  | { readonly kind: "event"; readonly type: string; readonly subject: string; readonly wallMs: number; readonly json: string };

/** As text, so that what the caller does to its object later changes nothing here. */
export function toWireChange(change: StoreChange): WireChange {
  switch (change.kind) {
    case "put":
      return {
        kind: "put",
        collection: change.collection,
        key: change.key,
        json: toJson(change.value),
        expectedVersion: change.expectedVersion,
      };
    case "delete":
      return change;
    case "event":
      return { kind: "event", type: change.type, subject: change.subject, wallMs: change.wallMs, json: toJson(change.data) };
  }
}

function toJson(value: unknown): string {
  const json = JSON.stringify(value) as string | undefined; // undefined for what JSON cannot hold
  assert(json !== undefined, "a stored value must be JSON");
  return json;
}

export interface WorkerSettings {
  readonly path: string;
  readonly eventsKept: number;
}

export type WorkerRequest =
  /** Commits of one group: one transaction, one sync. */
  | { readonly kind: "commit"; readonly id: number; readonly commits: readonly (readonly WireChange[])[] }
  | { readonly kind: "load"; readonly id: number; readonly collection: string }
  | {
      readonly kind: "events";
      readonly id: number;
      readonly subject: string | undefined;
      readonly afterSequence: number;
      readonly limit: number;
    }
  | { readonly kind: "close"; readonly id: number };

export interface WireRecord {
  readonly key: string;
  readonly value: string;
  readonly version: number;
}

export interface WireEvent {
  readonly sequence: number;
  readonly type: string;
  readonly subject: string;
  readonly wall_ms: number;
  readonly data: string;
}

/** An error in a form that crosses threads. */
export interface WireError {
  readonly code:
    | "STORE_CONFLICT"
    | "STORE_CORRUPT"
    | "STORE_TOO_NEW"
    | "STORE_UNAVAILABLE"
    | "HOST_OUT_OF_SPACE"
    | "STATE_DIR_LOCKED"
    | "STATE_DIR_UNUSABLE";
  readonly message: string;
  readonly cause: string;
}

export type WorkerReply =
  | { readonly kind: "opened" }
  | { readonly kind: "open_failed"; readonly error: WireError }
  /** One entry per commit of the group; `undefined` is success. */
  | { readonly kind: "committed"; readonly id: number; readonly results: readonly (WireError | undefined)[] }
  | { readonly kind: "loaded"; readonly id: number; readonly records: readonly WireRecord[] }
  | { readonly kind: "events"; readonly id: number; readonly events: readonly WireEvent[] }
  | { readonly kind: "closed"; readonly id: number }
  | { readonly kind: "failed"; readonly id: number; readonly error: WireError };
