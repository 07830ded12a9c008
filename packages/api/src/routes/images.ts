/** Images and kernels: the same five calls over two collections. */
import { CreateImageRequestSchema, CreateKernelRequestSchema, ImageViewSchema, KernelViewSchema } from "@fluxvm/contracts";
import type { ErrorClass } from "@fluxvm/core";
import { Type } from "typebox";
import { callPlatform, type Api, type ApiContext } from "../context.ts";
import { BODY_ERRORS, ImageParams, KernelParams, listOf, NoContent, replies, TimeoutSeconds } from "../schemas.ts";

const NoQuery = Type.Object({}, { additionalProperties: false });
const WaitQuery = Type.Object({ timeout_seconds: TimeoutSeconds }, { additionalProperties: false });
const CREATE_ERRORS: readonly ErrorClass[] = ["not_found", "already_exists", "failed_precondition", "capacity_exhausted"];

export function registerImageRoutes(api: Api, context: ApiContext): void {
  registerImageCollection(api, context);
  registerImageItem(api, context);
}

function registerImageCollection(api: Api, context: ApiContext): void {
  const { images } = context.platform;
  const tags = ["images"];
  api.post(
    "/v1/images",
    {
      schema: {
        operationId: "importImage",
        tags,
        summary: "Start importing an image; the same source twice at a time is one import",
        querystring: NoQuery,
        body: CreateImageRequestSchema,
        response: replies({ 202: ImageViewSchema }, CREATE_ERRORS, BODY_ERRORS),
      },
    },
    async (request, reply) => {
      const view = await callPlatform(
        context,
        { request, reply, what: "start import" },
        async (signal) => await images.create(request.body, { signal }),
      );
      return await reply.code(202).header("location", `/v1/images/${view.id}`).send(view);
    },
  );
  api.get(
    "/v1/images",
    {
      schema: {
        operationId: "listImages",
        tags,
        summary: "List images",
        querystring: NoQuery,
        response: replies({ 200: listOf(ImageViewSchema) }),
      },
    },
    async () => ({ items: [...(await images.list())] }),
  );
}

function registerImageItem(api: Api, context: ApiContext): void {
  const { images } = context.platform;
  const tags = ["images"];
  api.get(
    "/v1/images/:image",
    {
      schema: {
        operationId: "getImage",
        tags,
        summary: "Get an image",
        params: ImageParams,
        querystring: NoQuery,
        response: replies({ 200: ImageViewSchema }, ["not_found"]),
      },
    },
    async (request) => await images.get(request.params.image),
  );
  api.get(
    "/v1/images/:image/wait",
    {
      schema: {
        operationId: "waitForImage",
        tags,
        summary: "Wait until an import has ended, ready or failed",
        params: ImageParams,
        querystring: WaitQuery,
        response: replies({ 200: ImageViewSchema }, ["not_found"]),
      },
    },
    async (request, reply) => {
      const timeoutMs = Math.round((request.query.timeout_seconds ?? 60) * 1000);
      const call = { request, reply, what: "wait for image", extraMs: timeoutMs };
      return await callPlatform(context, call, async (signal) => await images.wait(request.params.image, { signal, timeoutMs }));
    },
  );
  api.delete(
    "/v1/images/:image",
    {
      schema: {
        operationId: "deleteImage",
        tags,
        summary: "Delete an image nobody uses, or cancel its import",
        params: ImageParams,
        querystring: NoQuery,
        response: replies({ 204: NoContent }, ["not_found", "failed_precondition"]),
      },
    },
    async (request, reply) => {
      await callPlatform(
        context,
        { request, reply, what: "delete image" },
        async (signal) => await images.delete(request.params.image, { signal }),
      );
      return await reply.code(204).send(null);
    },
  );
}

export function registerKernelRoutes(api: Api, context: ApiContext): void {
  registerKernelCollection(api, context);
  registerKernelItem(api, context);
}

function registerKernelCollection(api: Api, context: ApiContext): void {
  const { kernels } = context.platform;
  const tags = ["kernels"];
  api.post(
    "/v1/kernels",
    {
      schema: {
        operationId: "importKernel",
        tags,
        summary: "Start importing a guest kernel",
        querystring: NoQuery,
        body: CreateKernelRequestSchema,
        response: replies({ 202: KernelViewSchema }, CREATE_ERRORS, BODY_ERRORS),
      },
    },
    async (request, reply) => {
      const view = await callPlatform(
        context,
        { request, reply, what: "start import" },
        async (signal) => await kernels.create(request.body, { signal }),
      );
      return await reply.code(202).header("location", `/v1/kernels/${view.id}`).send(view);
    },
  );
  api.get(
    "/v1/kernels",
    {
      schema: {
        operationId: "listKernels",
        tags,
        summary: "List kernels",
        querystring: NoQuery,
        response: replies({ 200: listOf(KernelViewSchema) }),
      },
    },
    async () => ({ items: [...(await kernels.list())] }),
  );
}

function registerKernelItem(api: Api, context: ApiContext): void {
  const { kernels } = context.platform;
  const tags = ["kernels"];
  api.get(
    "/v1/kernels/:kernel",
    {
      schema: {
        operationId: "getKernel",
        tags,
        summary: "Get a kernel",
        params: KernelParams,
        querystring: NoQuery,
        response: replies({ 200: KernelViewSchema }, ["not_found"]),
      },
    },
    async (request) => await kernels.get(request.params.kernel),
  );
  api.get(
    "/v1/kernels/:kernel/wait",
    {
      schema: {
        operationId: "waitForKernel",
        tags,
        summary: "Wait until an import has ended, ready or failed",
        params: KernelParams,
        querystring: WaitQuery,
        response: replies({ 200: KernelViewSchema }, ["not_found"]),
      },
    },
    async (request, reply) => {
      const timeoutMs = Math.round((request.query.timeout_seconds ?? 60) * 1000);
      const call = { request, reply, what: "wait for kernel", extraMs: timeoutMs };
      return await callPlatform(context, call, async (signal) => await kernels.wait(request.params.kernel, { signal, timeoutMs }));
    },
  );
  api.delete(
    "/v1/kernels/:kernel",
    {
      schema: {
        operationId: "deleteKernel",
        tags,
        summary: "Delete a kernel no VM uses, or cancel its import",
        params: KernelParams,
        querystring: NoQuery,
        response: replies({ 204: NoContent }, ["not_found", "failed_precondition"]),
      },
    },
    async (request, reply) => {
      await callPlatform(
        context,
        { request, reply, what: "delete kernel" },
        async (signal) => await kernels.delete(request.params.kernel, { signal }),
      );
      return await reply.code(204).send(null);
    },
  );
}
