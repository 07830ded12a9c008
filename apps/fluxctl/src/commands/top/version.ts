import { defineCommand } from "../../command.ts";

export const version = defineCommand({
  path: ["version"],
  summary: "Show the daemon's version",
  async run(context) {
    const client = await context.client();
    const daemon = await client.host.version({ signal: context.signal });
    context.printer.record(daemon, {
      name: (item) => item.version,
      columns: [
        { title: "Version", value: (item) => item.version },
        { title: "API", value: (item) => item.api },
        { title: "Server", value: () => client.server },
        { title: "Instance", value: (item) => item.instance_id },
        { title: "Process", value: (item) => item.pid },
      ],
    });
    return 0;
  },
});
