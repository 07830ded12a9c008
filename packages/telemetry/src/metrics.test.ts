import assert from "node:assert/strict";
import { test } from "node:test";
import { counter, defineMetrics, gauge, histogram, MetricsRegistry } from "./metrics.ts";

const METRICS = defineMetrics({
  starts: counter({ name: "fluxvm_starts_total", help: "Starts.", labels: { outcome: ["ok", "error"], accel: ["kvm", "tcg"] } }),
  running: gauge({ name: "fluxvm_running", help: "Running now." }),
  boot: histogram({ name: "fluxvm_boot_seconds", help: "Boot time.", buckets: [1, 10] }),
  byRoute: counter({ name: "fluxvm_requests_total", help: "Requests.", labels: { route: [] } }),
});

test("every listed combination starts at zero, open labels have no rows", async () => {
  const registry = new MetricsRegistry();
  registry.create(METRICS);
  const text = await registry.render();
  for (const outcome of ["ok", "error"]) {
    for (const accel of ["kvm", "tcg"]) assert.ok(text.includes(`fluxvm_starts_total{outcome="${outcome}",accel="${accel}"} 0`), text);
  }
  assert.match(text, /^fluxvm_running 0$/m);
  assert.match(text, /^fluxvm_boot_seconds_count 0$/m);
  assert.match(text, /^# HELP fluxvm_requests_total Requests\.$/m);
  assert.ok(!/^fluxvm_requests_total\{/m.test(text));
});

test("counters add, gauges set, histograms sort into buckets", async () => {
  const registry = new MetricsRegistry();
  const metrics = registry.create(METRICS);
  metrics.starts.inc({ outcome: "ok", accel: "tcg" });
  metrics.starts.inc({ outcome: "ok", accel: "tcg" }, 2);
  metrics.running.set(4);
  metrics.boot.observe(2);
  metrics.byRoute.inc({ route: "/v1/vms" });
  const text = await registry.render();
  assert.ok(text.includes('fluxvm_starts_total{outcome="ok",accel="tcg"} 3'));
  assert.match(text, /^fluxvm_running 4$/m);
  assert.ok(text.includes('fluxvm_boot_seconds_bucket{le="1"} 0'));
  assert.ok(text.includes('fluxvm_boot_seconds_bucket{le="10"} 1'));
  assert.ok(text.includes('fluxvm_requests_total{route="/v1/vms"} 1'));
});

test("two registries share nothing", async () => {
  const first = new MetricsRegistry();
  const second = new MetricsRegistry();
  first.create(METRICS).running.set(9);
  second.create(METRICS);
  assert.match(await second.render(), /^fluxvm_running 0$/m);
});

test("a hook sets gauges before each rendering, and a failing hook hides nothing", async () => {
  const registry = new MetricsRegistry();
  const metrics = registry.create(METRICS);
  let value = 0;
  registry.beforeRender(() => metrics.running.set((value += 1)));
  registry.beforeRender(() => {
    throw new Error("no");
  });
  assert.match(await registry.render(), /^fluxvm_running 1$/m);
  assert.match(await registry.render(), /^fluxvm_running 2$/m);
});

test("bad declarations are refused", () => {
  assert.throws(() => counter({ name: "fluxvm_starts", help: "" }), /_total/);
  assert.throws(() => gauge({ name: "fluxvm_now_total", help: "" }), /_total/);
  assert.throws(() => gauge({ name: "Other", help: "" }), /bad metric name/);
  assert.throws(() => gauge({ name: "fluxvm_x", help: "", labels: { "bad-label": [] } }), /bad label/);
  const one = gauge({ name: "fluxvm_x", help: "" });
  assert.throws(() => defineMetrics({ a: one, b: one }), /twice/);
  const many = Array.from({ length: 30 }, (_, i) => String(i));
  assert.throws(
    () => new MetricsRegistry().create({ m: gauge({ name: "fluxvm_x", help: "", labels: { a: many, b: many } }) }),
    /900 series/,
  );
});

test("process metrics are there on request only", async () => {
  const registry = new MetricsRegistry();
  assert.equal((await registry.render()).includes("process_cpu"), false);
  registry.collectProcessMetrics();
  assert.ok((await registry.render()).includes("process_cpu_seconds_total"));
});
