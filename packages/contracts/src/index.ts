export { ConfigSchema, type Config, type ConfigInput } from "./config.ts";
export * from "./errors.ts";
export * from "./rest/guest.ts";
export * from "./rest/host.ts";
export * from "./rest/image.ts";
export * from "./rest/vm.ts";
export { fillSchemaDefaults, findSchemaProblems, type SchemaProblem } from "./schema-check.ts";
