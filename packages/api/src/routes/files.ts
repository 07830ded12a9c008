/** Files of a guest, streamed both ways: neither direction has a size cap or holds a file in memory. */
import { FileStatSchema, MakeDirectoryRequestSchema, RenameFileRequestSchema, type FileEvent } from "@fluxvm/contracts";
import { PlatformError, type ErrorClass } from "@fluxvm/core";
import { Type } from "typebox";
import { callPlatform, getCallerSignal, type Api, type ApiContext } from "../context.ts";
import { BODY_ERRORS, GuestPath, listOf, NoContent, replies, VmParams } from "../schemas.ts";
import { streamOut } from "../stream-out.ts";
import { receiveUpload } from "../upload.ts";

const tags = ["files"];
const NoQuery = Type.Object({}, { additionalProperties: false });
const PathQuery = Type.Object({ path: GuestPath }, { additionalProperties: false });
const FILE_ERRORS: readonly ErrorClass[] = ["not_found", "failed_precondition", "already_exists"];
const Bytes = { "application/octet-stream": { schema: Type.String({ format: "binary" }) } };

export function registerFileRoutes(api: Api, context: ApiContext): void {
  registerRead(api, context);
  registerWrite(api, context);
  registerLooks(api, context);
  registerChanges(api, context);
  registerRemove(api, context);
  registerWatch(api, context);
}

function registerRead(api: Api, context: ApiContext): void {
  api.get(
    "/v1/vms/:vm/files",
    {
      schema: {
        operationId: "readFile",
        tags,
        summary: "Read a file; the header `X-Fluxvm-File-Stat` holds its FileStat as JSON",
        params: VmParams,
        querystring: Type.Object(
          {
            path: GuestPath,
            offset: Type.Optional(Type.Integer({ minimum: 0, description: "First byte; default 0" })),
            length: Type.Optional(Type.Integer({ minimum: 0, description: "Most bytes; default all" })),
          },
          { additionalProperties: false },
        ),
        response: replies({ 200: { description: "The bytes", content: Bytes } }, FILE_ERRORS),
      },
    },
    async (request, reply) => {
      const { path, offset, length } = request.query;
      const signal = AbortSignal.any([getCallerSignal({ request, reply }), context.stopping]);
      const file = await context.platform.guests.readFile(request.params.vm, path, { offset, length }, { signal });
      await streamOut(
        context,
        { request, reply },
        {
          headers: { "content-type": "application/octet-stream", "x-fluxvm-file-stat": toAsciiJson(file.stat) },
          open: () => file.content,
        },
      );
      return reply;
    },
  );
}

/** JSON that a header may carry: characters beyond ASCII are escaped. */
function toAsciiJson(value: unknown): string {
  return JSON.stringify(value).replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function registerWrite(api: Api, context: ApiContext): void {
  // A scope of its own, since its parser takes any content type and hands the body over unread.
  api.register(async (scope: Api) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser("*", (_request, _payload, done) => done(null));
    scope.put(
      "/v1/vms/:vm/files",
      {
        bodyLimit: Number.MAX_SAFE_INTEGER,
        schema: {
          operationId: "writeFile",
          tags,
          summary: "Write a file whole and at once: it has its new content or its old one",
          description: "The body is the file's bytes, of any content type and size.",
          params: VmParams,
          querystring: Type.Object(
            {
              path: GuestPath,
              mode: Type.Optional(
                Type.String({
                  pattern: "^(0[0-7]{1,4}|[1-9][0-9]{0,3}|0)$",
                  description: "Permission bits: octal with a leading 0, else decimal",
                }),
              ),
              uid: Type.Optional(Type.Integer({ minimum: 0, maximum: 4_294_967_294 })),
              gid: Type.Optional(Type.Integer({ minimum: 0, maximum: 4_294_967_294 })),
              parents: Type.Optional(Type.Boolean({ default: false, description: "Make missing parent directories" })),
            },
            { additionalProperties: false },
          ),
          response: replies({ 200: FileStatSchema }, [...FILE_ERRORS, "capacity_exhausted"], [413]),
        },
      },
      async (request, reply) => {
        const { path, mode, uid, gid, parents } = request.query;
        const attributes = { mode: parseMode(mode), uid, gid, createParents: parents };
        return await receiveUpload(
          context,
          { request, reply },
          async (content, signal) => await context.platform.guests.writeFile(request.params.vm, path, content, attributes, { signal }),
        );
      },
    );
  });
}

function parseMode(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const mode = Number.parseInt(text, text.startsWith("0") ? 8 : 10);
  if (mode > 0o7777)
    throw new PlatformError("REQUEST_INVALID", 'Invalid query parameter "mode": must be at most 07777', {
      fields: [{ path: "mode", message: "must be at most 07777" }],
    });
  return mode;
}

function registerLooks(api: Api, context: ApiContext): void {
  const { guests } = context.platform;
  api.get(
    "/v1/vms/:vm/files/stat",
    {
      schema: {
        operationId: "statFile",
        tags,
        summary: "What a path is",
        params: VmParams,
        querystring: PathQuery,
        response: replies({ 200: FileStatSchema }, FILE_ERRORS),
      },
    },
    async (request, reply) =>
      await callPlatform(
        context,
        { request, reply, what: "stat file" },
        async (signal) => await guests.statFile(request.params.vm, request.query.path, { signal }),
      ),
  );
  api.get(
    "/v1/vms/:vm/files/list",
    {
      schema: {
        operationId: "listFiles",
        tags,
        summary: "What a directory holds",
        params: VmParams,
        querystring: PathQuery,
        response: replies({ 200: listOf(FileStatSchema) }, FILE_ERRORS),
      },
    },
    async (request, reply) => {
      const { vm } = request.params;
      const items = await callPlatform(
        context,
        { request, reply, what: "list directory" },
        async (signal) => await guests.listFiles(vm, request.query.path, { signal }),
      );
      return { items: [...items] };
    },
  );
}

function registerChanges(api: Api, context: ApiContext): void {
  const { guests } = context.platform;
  const response = replies({ 204: NoContent }, [...FILE_ERRORS, "capacity_exhausted"], BODY_ERRORS);
  api.post(
    "/v1/vms/:vm/files/mkdir",
    {
      schema: {
        operationId: "makeDirectory",
        tags,
        summary: "Make a directory",
        params: VmParams,
        querystring: NoQuery,
        body: MakeDirectoryRequestSchema,
        response,
      },
    },
    async (request, reply) => {
      const { path, parents, mode } = request.body;
      const how = { parents: parents ?? false, mode };
      await callPlatform(
        context,
        { request, reply, what: "make directory" },
        async (signal) => await guests.makeDirectory(request.params.vm, path, how, { signal }),
      );
      return await reply.code(204).send(null);
    },
  );
  api.post(
    "/v1/vms/:vm/files/rename",
    {
      schema: {
        operationId: "renameFile",
        tags,
        summary: "Rename a file or directory, replacing what is there",
        params: VmParams,
        querystring: NoQuery,
        body: RenameFileRequestSchema,
        response,
      },
    },
    async (request, reply) => {
      const { from, to } = request.body;
      await callPlatform(
        context,
        { request, reply, what: "rename file" },
        async (signal) => await guests.renameFile(request.params.vm, from, to, { signal }),
      );
      return await reply.code(204).send(null);
    },
  );
}

function registerRemove(api: Api, context: ApiContext): void {
  const { guests } = context.platform;
  api.delete(
    "/v1/vms/:vm/files",
    {
      schema: {
        operationId: "removeFile",
        tags,
        summary: "Remove a file or directory",
        params: VmParams,
        querystring: Type.Object(
          { path: GuestPath, recursive: Type.Optional(Type.Boolean({ default: false, description: "With everything in it" })) },
          { additionalProperties: false },
        ),
        response: replies({ 204: NoContent }, FILE_ERRORS),
      },
    },
    async (request, reply) => {
      const { path, recursive } = request.query;
      const how = { recursive: recursive ?? false };
      await callPlatform(
        context,
        { request, reply, what: "remove file" },
        async (signal) => await guests.removeFile(request.params.vm, path, how, { signal }),
      );
      return await reply.code(204).send(null);
    },
  );
}

function registerWatch(api: Api, context: ApiContext): void {
  api.get(
    "/v1/vms/:vm/files/watch",
    {
      schema: {
        operationId: "watchFiles",
        tags,
        summary: "Changes of a directory or file as server-sent events, each a FileEvent as JSON",
        params: VmParams,
        querystring: PathQuery,
        response: replies({ 200: { description: "Events", content: { "text/event-stream": { schema: Type.String() } } } }, FILE_ERRORS),
      },
    },
    async (request, reply) => {
      const { vm } = request.params;
      const { path } = request.query;
      await streamOut(
        context,
        { request, reply },
        {
          headers: { "content-type": "text/event-stream", "cache-control": "no-store" },
          open: (signal) => encodeEvents(context.platform.guests.watchFiles(vm, path, { signal })),
          keepAlive: Buffer.from(": still here\n\n"),
        },
      );
      return reply;
    },
  );
}

async function* encodeEvents(events: AsyncIterable<FileEvent>): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const event of events) yield Buffer.from(`event: file\ndata: ${JSON.stringify(event)}\n\n`);
}
