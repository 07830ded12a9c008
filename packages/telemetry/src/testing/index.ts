export { createMemoryLogger, type LogLine } from "./memory-logger.ts";
