/** Commands in a guest: the one-shot call of the reference API, and execs that outlive every connection. */
import {
  AgentExecRequestSchema,
  AgentExecResultSchema,
  CreateExecRequestSchema,
  ExecViewSchema,
  PingResultSchema,
  SignalExecRequestSchema,
} from "@fluxvm/contracts";
import { PlatformError, type ErrorClass } from "@fluxvm/core";
import { Type } from "typebox";
import { callPlatform, type Api, type ApiContext } from "../context.ts";
import { serveExecSocket } from "../exec-socket.ts";
import { BODY_ERRORS, ExecParams, listOf, NoContent, replies, VmParams } from "../schemas.ts";

const tags = ["execs"];
const NoQuery = Type.Object({}, { additionalProperties: false });
const EmptyBody = Type.Object({}, { additionalProperties: false });
const GUEST_ERRORS: readonly ErrorClass[] = ["not_found", "failed_precondition"];

export function registerExecRoutes(api: Api, context: ApiContext): void {
  registerAgent(api, context);
  registerCollection(api, context);
  registerItem(api, context);
  registerAttach(api, context);
}

function registerAgent(api: Api, context: ApiContext): void {
  const { guests } = context.platform;
  api.post(
    "/v1/vms/:vm/agent",
    {
      schema: {
        operationId: "runInVm",
        tags,
        summary: "Run a command to its end and answer with its output, cut at 1 MiB a stream",
        params: VmParams,
        querystring: NoQuery,
        body: AgentExecRequestSchema,
        response: replies({ 200: AgentExecResultSchema }, GUEST_ERRORS, BODY_ERRORS),
      },
    },
    async (request, reply) =>
      await callPlatform(
        context,
        { request, reply, what: "run command", extraMs: (request.body.timeout_seconds ?? 30) * 1000 },
        async (signal) => await guests.run(request.params.vm, request.body, { signal }),
      ),
  );
  api.post(
    "/v1/vms/:vm/agent/ping",
    {
      schema: {
        operationId: "pingAgent",
        tags,
        summary: "Ask the guest agent for a sign of life",
        params: VmParams,
        querystring: NoQuery,
        body: EmptyBody,
        response: replies({ 200: PingResultSchema }, GUEST_ERRORS),
      },
    },
    async (request, reply) =>
      await callPlatform(context, { request, reply, what: "ping guest agent" }, async (signal) => ({
        ...(await guests.ping(request.params.vm, { signal })),
      })),
  );
}

function registerCollection(api: Api, context: ApiContext): void {
  const { guests } = context.platform;
  api.post(
    "/v1/vms/:vm/execs",
    {
      schema: {
        operationId: "createExec",
        tags,
        summary: "Start a command; attach to it for its output",
        params: VmParams,
        querystring: NoQuery,
        body: CreateExecRequestSchema,
        response: replies({ 201: ExecViewSchema }, GUEST_ERRORS, BODY_ERRORS),
      },
    },
    async (request, reply) => {
      const { vm } = request.params;
      const view = await callPlatform(
        context,
        { request, reply, what: "start exec" },
        async (signal) => await guests.createExec(vm, request.body, { signal }),
      );
      return await reply
        .code(201)
        .header("location", `/v1/vms/${encodeURIComponent(vm)}/execs/${view.id}`)
        .send(view);
    },
  );
  api.get(
    "/v1/vms/:vm/execs",
    {
      schema: {
        operationId: "listExecs",
        tags,
        summary: "List a VM's execs, ended ones that nobody removed included",
        params: VmParams,
        querystring: NoQuery,
        response: replies({ 200: listOf(ExecViewSchema) }, GUEST_ERRORS),
      },
    },
    async (request, reply) => {
      const items = await callPlatform(
        context,
        { request, reply, what: "list execs" },
        async (signal) => await guests.listExecs(request.params.vm, { signal }),
      );
      return { items: [...items] };
    },
  );
}

function registerItem(api: Api, context: ApiContext): void {
  const { guests } = context.platform;
  api.get(
    "/v1/vms/:vm/execs/:exec",
    {
      schema: {
        operationId: "getExec",
        tags,
        summary: "Get an exec",
        params: ExecParams,
        querystring: NoQuery,
        response: replies({ 200: ExecViewSchema }, GUEST_ERRORS),
      },
    },
    async (request, reply) => {
      const { vm, exec } = request.params;
      return await callPlatform(
        context,
        { request, reply, what: "get exec" },
        async (signal) => await guests.getExec(vm, exec, { signal }),
      );
    },
  );
  api.delete(
    "/v1/vms/:vm/execs/:exec",
    {
      schema: {
        operationId: "deleteExec",
        tags,
        summary: "Forget an ended exec and its output; kill a running one",
        params: ExecParams,
        querystring: NoQuery,
        response: replies({ 204: NoContent }, GUEST_ERRORS),
      },
    },
    async (request, reply) => {
      const { vm, exec } = request.params;
      await callPlatform(context, { request, reply, what: "remove exec" }, async (signal) => await guests.removeExec(vm, exec, { signal }));
      return await reply.code(204).send(null);
    },
  );
  api.post(
    "/v1/vms/:vm/execs/:exec/signal",
    {
      schema: {
        operationId: "signalExec",
        tags,
        summary: "Send a signal to an exec's process group",
        params: ExecParams,
        querystring: NoQuery,
        body: SignalExecRequestSchema,
        response: replies({ 204: NoContent }, GUEST_ERRORS, BODY_ERRORS),
      },
    },
    async (request, reply) => {
      const { vm, exec } = request.params;
      await callPlatform(
        context,
        { request, reply, what: "signal exec" },
        async (signal) => await guests.signalExec(vm, exec, request.body.signal, { signal }),
      );
      return await reply.code(204).send(null);
    },
  );
}

function registerAttach(api: Api, context: ApiContext): void {
  const Offset = Type.Optional(
    Type.Integer({ minimum: 0, default: 0, description: "First byte wanted; those before it count as received" }),
  );
  const querystring = Type.Object({ stdout_offset: Offset, stderr_offset: Offset }, { additionalProperties: false });
  api.route({
    method: "GET",
    url: "/v1/vms/:vm/execs/:exec/attach",
    schema: {
      operationId: "attachExec",
      tags,
      summary: "WebSocket: an exec's output from given offsets, its input, and control",
      description:
        "Binary frames: u8 channel (0 stdin, 1 stdout, 2 stderr), u64 big-endian offset, bytes. Text frames are JSON: the client sends " +
        "`ack`, `stdin_end`, `resize`, `signal`; the server sends `attached` or `error` first, then `stdin_ack` and at last `exit`.",
      params: ExecParams,
      querystring,
      response: replies({ 101: Type.Null({ description: "The connection becomes a WebSocket" }) }, GUEST_ERRORS),
    },
    handler: async () => {
      throw new PlatformError("REQUEST_INVALID", "This route is a WebSocket: connect with an upgrade request");
    },
    wsHandler: async (socket, request) => {
      const { vm, exec } = request.params;
      const query = request.query;
      await serveExecSocket(context, socket, {
        requestId: request.id,
        attach: async (signal) =>
          await context.platform.guests.attachExec(
            vm,
            exec,
            { stdout: query.stdout_offset ?? 0, stderr: query.stderr_offset ?? 0 },
            { signal },
          ),
      });
    },
  });
}
