export { startTestAgent, testAgentBinaryPath, type TestAgent } from "./test-agent.ts";
