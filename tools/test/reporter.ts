/**
 * A node:test reporter that writes one JSON object a line, for our runner: `--test-reporter=tools/test/reporter.ts`.
 * Suites are left out: what counts is tests.
 */
import { inspect } from "node:util";
import type { TestEvent as NodeTestEvent } from "node:test/reporters";

/** One test's end, as it stands in the reporter's output. */
export interface TestRecord {
  readonly outcome: "passed" | "failed" | "skipped" | "todo";
  readonly name: string;
  readonly durationMs: number;
  /** Why it was skipped, or what failed. */
  readonly detail: string;
}

// oxlint-disable-next-line import/no-default-export -- node:test takes a reporter's default export
export default async function* report(events: AsyncIterable<NodeTestEvent>): AsyncGenerator<string> {
  const names: string[] = [];
  for await (const event of events) {
    if (event.type === "test:start") {
      names.length = event.data.nesting;
      names[event.data.nesting] = event.data.name;
    }
    if (event.type !== "test:pass" && event.type !== "test:fail") continue;
    if (event.type === "test:pass" ? event.data.details.type === "suite" : isAboutSubtests(event.data.details.error)) continue;
    names.length = event.data.nesting;
    const name = [...names, event.data.name].join(" > ");
    yield `${JSON.stringify({ name, durationMs: event.data.details.duration_ms, ...decideOutcome(event) } satisfies TestRecord)}\n`;
  }
}

function decideOutcome(event: Extract<NodeTestEvent, { type: "test:pass" | "test:fail" }>): Pick<TestRecord, "outcome" | "detail"> {
  const { skip, todo } = event.data;
  if (event.type === "test:fail") return { outcome: "failed", detail: describe(event.data.details.error) };
  if (skip !== undefined && skip !== false) return { outcome: "skipped", detail: String(skip) };
  if (todo !== undefined && todo !== false) return { outcome: "todo", detail: String(todo) };
  return { outcome: "passed", detail: "" };
}

/** A test or suite that failed only since one within it failed, which is counted by itself. */
function isAboutSubtests(error: Error): boolean {
  return "failureType" in error && error.failureType === "subtestsFailed";
}

/** The error that the test threw; node wraps it into one of its own. */
function describe(error: Error): string {
  return inspect(error.cause ?? error, { depth: 6, colors: false, maxStringLength: 20_000 });
}
