export { collectExec, type CollectedExec } from "./collect.ts";
export { startTestAgent, testAgentBinaryPath, type TestAgent } from "./test-agent.ts";
