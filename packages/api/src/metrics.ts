/** What the API counts about itself. */
import { counter, defineMetrics, gauge, histogram } from "@fluxvm/telemetry";

export const METRICS = defineMetrics({
  requests: counter({
    name: "fluxvm_api_requests_total",
    help: "API requests by route pattern, method and HTTP status.",
    labels: { route: [], method: [], status: [] },
  }),
  duration: histogram({
    name: "fluxvm_api_request_duration_seconds",
    help: "Time from a request's first byte to the end of its reply, streams and waits included, by route pattern.",
    labels: { route: [] },
  }),
  denied: counter({
    name: "fluxvm_api_denied_total",
    help: "Requests refused before their route was looked at, by reason.",
    labels: { reason: ["token_missing", "token_invalid", "origin"] },
  }),
  attachments: gauge({ name: "fluxvm_api_exec_attachments", help: "WebSocket clients attached to an exec now." }),
});
