/** Virtual machines: their life, and their console log. */
import {
  CreateVmRequestSchema,
  PatchVmRequestSchema,
  StopVmRequestSchema,
  VM_STATES,
  VmViewSchema,
  type StopVmRequest,
  type VmStateName,
} from "@fluxvm/contracts";
import { invalidField } from "@fluxvm/core";
import { Type } from "typebox";
import { callPlatform, type Api, type ApiContext, type CallBudget, type Exchange } from "../context.ts";
import { BODY_ERRORS, listOf, NoContent, ReadyQuery, replies, TimeoutSeconds, VmParams } from "../schemas.ts";
import { streamOut } from "../stream-out.ts";

const tags = ["vms"];
const ReadyOnly = Type.Object(ReadyQuery, { additionalProperties: false });
const NoQuery = Type.Object({}, { additionalProperties: false });
const EmptyBody = Type.Object({}, { additionalProperties: false });

type WaitState = VmStateName | "ready" | "gone";
const WAIT_STATES: readonly string[] = [...VM_STATES, "ready", "gone"];

export function registerVmRoutes(api: Api, context: ApiContext): void {
  registerCollection(api, context);
  registerItem(api, context);
  registerPowerActions(api, context);
  registerPauseAndResume(api, context);
  registerWait(api, context);
  registerLogs(api, context);
}

interface ReadyParameters {
  readonly ready?: "exec" | undefined;
  readonly wait_first_command?: boolean | undefined;
}

function parseReady(query: ReadyParameters): "exec" | undefined {
  return query.ready === "exec" || query.wait_first_command === true ? "exec" : undefined;
}

function registerCollection(api: Api, context: ApiContext): void {
  const { platform, limits } = context;
  api.post(
    "/v1/vms",
    {
      schema: {
        operationId: "createVm",
        tags,
        summary: "Create a VM and start it",
        querystring: ReadyOnly,
        body: CreateVmRequestSchema,
        response: replies({ 201: VmViewSchema }, ["not_found", "already_exists", "unsupported", "capacity_exhausted"], BODY_ERRORS),
      },
    },
    async (request, reply) => {
      const ready = parseReady(request.query);
      const budget = { what: "create VM", extraMs: ready === undefined ? 0 : limits.readyTimeoutMs };
      const view = await callPlatform(
        context,
        { request, reply, ...budget },
        async (signal) => await platform.vms.create(request.body, { signal, ready }),
      );
      return await reply.code(201).header("location", `/v1/vms/${view.id}`).send(view);
    },
  );
  api.get(
    "/v1/vms",
    {
      schema: {
        operationId: "listVms",
        tags,
        summary: "List VMs",
        querystring: Type.Object(
          {
            name: Type.Optional(Type.String({ maxLength: 255, description: "Exact name" })),
            label: Type.Optional(Type.String({ maxLength: 4096, description: "Label selector `k=v,k2!=v,k3,!k4`: all must hold" })),
            state: Type.Optional(Type.Union(VM_STATES.map((s) => Type.Literal(s)))),
          },
          { additionalProperties: false },
        ),
        response: replies({ 200: listOf(VmViewSchema) }),
      },
    },
    async (request) => {
      const { name, label, state } = request.query;
      return { items: [...(await platform.vms.list({ name, selector: label, state }))] };
    },
  );
}

function registerItem(api: Api, context: ApiContext): void {
  const { platform } = context;
  api.get(
    "/v1/vms/:vm",
    {
      schema: {
        operationId: "getVm",
        tags,
        summary: "Get a VM",
        params: VmParams,
        querystring: NoQuery,
        response: replies({ 200: VmViewSchema }, ["not_found"]),
      },
    },
    async (request) => await platform.vms.get(request.params.vm),
  );
  api.patch(
    "/v1/vms/:vm",
    {
      schema: {
        operationId: "patchVm",
        tags,
        summary: "Change name, labels or time to live",
        params: VmParams,
        querystring: NoQuery,
        body: PatchVmRequestSchema,
        response: replies({ 200: VmViewSchema }, ["not_found", "already_exists", "unsupported"], BODY_ERRORS),
      },
    },
    async (request, reply) =>
      await callPlatform(
        context,
        { request, reply, what: "change VM" },
        async (signal) => await platform.vms.patch(request.params.vm, request.body, { signal }),
      ),
  );
  api.delete(
    "/v1/vms/:vm",
    {
      schema: {
        operationId: "deleteVm",
        tags,
        summary: "Delete a VM, killing it if it runs; answers when nothing of it is left",
        params: VmParams,
        querystring: NoQuery,
        response: replies({ 204: NoContent }, ["not_found", "failed_precondition"]),
      },
    },
    async (request, reply) => {
      await callPlatform(
        context,
        { request, reply, what: "delete VM" },
        async (signal) => await platform.vms.delete(request.params.vm, { signal }),
      );
      return await reply.code(204).send(null);
    },
  );
}

function registerPowerActions(api: Api, context: ApiContext): void {
  const { platform, limits } = context;
  const response = replies({ 200: VmViewSchema }, ["not_found", "failed_precondition", "capacity_exhausted", "unsupported"], BODY_ERRORS);
  const readyMs = (query: ReadyParameters): number => (parseReady(query) === undefined ? 0 : limits.readyTimeoutMs);
  const stopMs = (body: StopVmRequest): number => (body.timeout_seconds ?? 0) * 1000;
  api.post(
    "/v1/vms/:vm/start",
    {
      schema: {
        operationId: "startVm",
        tags,
        summary: "Start a stopped VM",
        params: VmParams,
        querystring: ReadyOnly,
        body: EmptyBody,
        response,
      },
    },
    async (request, reply) =>
      await callPlatform(
        context,
        { request, reply, what: "start VM", extraMs: readyMs(request.query) },
        async (signal) => await platform.vms.start(request.params.vm, { signal, ready: parseReady(request.query) }),
      ),
  );
  api.post(
    "/v1/vms/:vm/stop",
    {
      schema: {
        operationId: "stopVm",
        tags,
        summary: "Stop a VM: ask the guest, then kill it when its time is over",
        params: VmParams,
        querystring: NoQuery,
        body: StopVmRequestSchema,
        response,
      },
    },
    async (request, reply) =>
      await callPlatform(
        context,
        { request, reply, what: "stop VM", extraMs: stopMs(request.body) },
        async (signal) => await platform.vms.stop(request.params.vm, request.body, { signal }),
      ),
  );
  api.post(
    "/v1/vms/:vm/restart",
    {
      schema: {
        operationId: "restartVm",
        tags,
        summary: "Stop and start a VM",
        params: VmParams,
        querystring: ReadyOnly,
        body: StopVmRequestSchema,
        response,
      },
    },
    async (request, reply) =>
      await callPlatform(
        context,
        { request, reply, what: "restart VM", extraMs: stopMs(request.body) + readyMs(request.query) },
        async (signal) => await platform.vms.restart(request.params.vm, request.body, { signal, ready: parseReady(request.query) }),
      ),
  );
}

function registerPauseAndResume(api: Api, context: ApiContext): void {
  const { platform } = context;
  const response = replies({ 200: VmViewSchema }, ["not_found", "failed_precondition", "unsupported"], BODY_ERRORS);
  for (const verb of ["pause", "resume"] as const) {
    api.post(
      `/v1/vms/:vm/${verb}`,
      {
        schema: {
          operationId: `${verb}Vm`,
          tags,
          summary: verb === "pause" ? "Stop a VM's CPUs, keeping its memory" : "Let a paused VM go on",
          params: VmParams,
          querystring: NoQuery,
          body: EmptyBody,
          response,
        },
      },
      async (request, reply) =>
        await callPlatform(
          context,
          { request, reply, what: `${verb} VM` },
          async (signal) => await platform.vms[verb](request.params.vm, { signal }),
        ),
    );
  }
}

function registerWait(api: Api, context: ApiContext): void {
  const { platform } = context;
  api.get(
    "/v1/vms/:vm/wait",
    {
      schema: {
        operationId: "waitForVm",
        tags,
        summary: "Wait until a VM is in one of the states named; 204 when that is `gone` and it is",
        params: VmParams,
        querystring: Type.Object(
          {
            for: Type.String({ minLength: 1, maxLength: 255, description: `Comma-separated: ${WAIT_STATES.join(", ")}` }),
            timeout_seconds: TimeoutSeconds,
          },
          { additionalProperties: false },
        ),
        response: replies({ 200: VmViewSchema, 204: NoContent }, ["not_found", "failed_precondition"]),
      },
    },
    async (request, reply) => {
      const states = parseWaitStates(request.query.for);
      const timeoutMs = Math.round((request.query.timeout_seconds ?? 60) * 1000);
      const call: Exchange & CallBudget = { request, reply, what: "wait for VM", extraMs: timeoutMs };
      const view = await callPlatform(
        context,
        call,
        async (signal) => await platform.vms.wait(request.params.vm, states, { signal, timeoutMs }),
      );
      return view === undefined ? await reply.code(204).send(null) : await reply.code(200).send(view);
    },
  );
}

function parseWaitStates(text: string): readonly WaitState[] {
  const states = text.split(",");
  const bad = states.find((s) => !WAIT_STATES.includes(s));
  if (bad !== undefined) throw invalidField("for", `${JSON.stringify(bad)} is not one of ${WAIT_STATES.join(", ")}`);
  return states as WaitState[]; // each is one of WAIT_STATES
}

function registerLogs(api: Api, context: ApiContext): void {
  const { platform } = context;
  api.get(
    "/v1/vms/:vm/logs",
    {
      schema: {
        operationId: "getVmLogs",
        tags,
        summary: "The last lines of the VM's console, then what follows if asked",
        params: VmParams,
        querystring: Type.Object(
          {
            lines: Type.Optional(Type.Integer({ minimum: 0, maximum: 100_000, default: 100 })),
            follow: Type.Optional(Type.Boolean({ default: false, description: "Stay and send what the console prints next" })),
          },
          { additionalProperties: false },
        ),
        response: replies({ 200: { description: "Console output as it is", content: { "text/plain": { schema: Type.String() } } } }, [
          "not_found",
        ]),
      },
    },
    async (request, reply) => {
      const query = { lines: request.query.lines ?? 100, follow: request.query.follow ?? false };
      await platform.vms.get(request.params.vm);
      await streamOut(
        context,
        { request, reply },
        {
          headers: { "content-type": "text/plain; charset=utf-8" },
          open: (signal) => platform.vms.logs(request.params.vm, query, { signal }),
        },
      );
      return reply;
    },
  );
}
