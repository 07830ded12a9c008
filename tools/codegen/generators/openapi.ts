/** `docs/reference/openapi.json` from the routes' schemas. */
import type { Generator } from "../generator.ts";

export const openApiDocument: Generator = {
  name: "openapi",
  async generate() {
    const { buildOpenApiDocument } = await import("@fluxvm/api");
    return { "docs/reference/openapi.json": `${JSON.stringify(await buildOpenApiDocument(), undefined, 2)}\n` };
  },
};
