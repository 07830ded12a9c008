/** The worker thread's entry: opens the database, then answers requests one at a time, in order. */
import { parentPort, workerData } from "node:worker_threads";
import { Database, toWireError } from "./database.ts";
import type { WorkerReply, WorkerRequest, WorkerSettings } from "./worker-protocol.ts";

const port = parentPort;
if (port === null) throw new Error("store-worker runs as a worker thread only");

const reply = (message: WorkerReply): void => port.postMessage(message);

function open(): Database | undefined {
  try {
    const database = new Database(workerData as WorkerSettings); // set by openSqliteStore
    reply({ kind: "opened" });
    return database;
  } catch (error) {
    reply({ kind: "open_failed", error: toWireError(error, true) });
    return undefined;
  }
}

function answer(database: Database, request: WorkerRequest): WorkerReply {
  const { id } = request;
  try {
    switch (request.kind) {
      case "commit":
        return { kind: "committed", id, results: database.commitGroup(request.commits) };
      case "load":
        return { kind: "loaded", id, records: database.load(request.collection) };
      case "events":
        return { kind: "events", id, events: database.listEvents(request) };
      case "close":
        database.close();
        return { kind: "closed", id };
    }
  } catch (error) {
    return { kind: "failed", id, error: toWireError(error) };
  }
}

const database = open();
if (database === undefined) port.close();
else {
  port.on("message", (request: WorkerRequest) => {
    reply(answer(database, request));
    if (request.kind === "close") port.close();
  });
}
