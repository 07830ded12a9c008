/** `docs/manual/errors.md` from the error catalogue. */
import { ERROR_CATALOGUE, ERROR_CLASSES } from "@fluxvm/core";
import { formatTable, markGenerated, type Generator } from "../generator.ts";

const INTRO = `# Errors

Every error has a permanent \`code\` and a \`class\`. The class decides the HTTP status, the exit code of \`fluxctl\` and, for
gRPC and ttrpc, the status code. On the wire an error is a JSON object:

\`\`\`json
{ "code": "VM_NOT_FOUND", "class": "not_found", "message": "No VM \\"web\\"", "requestId": "req-…", "fields": [] }
\`\`\`

\`message\` is for the reader. \`fields\`, where present, names what to correct in the request. \`requestId\` finds the request
in the daemon's log, where causes and details are. Programs decide by \`code\` or \`class\`, never by \`message\`.
`;

export const errorsPage: Generator = {
  name: "errors",
  async generate() {
    const classes = Object.entries(ERROR_CLASSES).map(([name, c]) => [`\`${name}\``, String(c.http), String(c.grpc), String(c.exit)]);
    const codes = Object.entries(ERROR_CATALOGUE).map(([code, row]) => [`\`${code}\``, `\`${row.class}\``, row.help]);
    const text = [
      INTRO,
      markGenerated("`packages/core/src/errors/catalogue.ts`"),
      "\n## Classes\n",
      formatTable(["Class", "HTTP", "gRPC", "Exit code"], classes),
      "\n## Codes\n",
      formatTable(["Code", "Class", "What it means and what to do"], codes),
      "",
    ].join("\n");
    return await Promise.resolve({ "docs/manual/errors.md": text });
  },
};
