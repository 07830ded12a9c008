/** `docs/manual/metrics.md` from the `METRICS` of every `src/metrics.ts`. One without them would be left out unseen, so it is an error. */
import { globSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { MetricDeclaration, MetricDeclarations } from "@fluxvm/telemetry";
import { formatTable, markGenerated, type Generator } from "../generator.ts";

const INTRO = `# Metrics

\`GET /metrics\` gives the daemon's metrics in the Prometheus text format. Each combination of the listed label values starts
at zero; a label marked "any" has a row from its first use on. Durations are in seconds, sizes in bytes. The usual metrics of
a process and of Node (\`process_*\`, \`nodejs_*\`) come with them.
`;

/** What declares the words, and no metric. */
const DEFINITIONS = "packages/telemetry/src/metrics.ts";

export function createMetricsPage(root: string): Generator {
  return {
    name: "metrics",
    async generate() {
      const found = globSync(["packages/*/src/metrics.ts", "apps/*/src/metrics.ts"], { cwd: root });
      const files = found.filter((file) => file !== DEFINITIONS).sort();
      const sections: string[] = [];
      for (const file of files) {
        const declarations = await readDeclarations(join(root, file));
        sections.push(
          `\n## ${file.replace("/src/metrics.ts", "")}\n`,
          formatTable(["Metric", "Kind", "Labels", "Meaning"], declarations.map(toRow)),
        );
      }
      return { "docs/manual/metrics.md": [INTRO, markGenerated("each owner's `src/metrics.ts`"), ...sections, ""].join("\n") };
    },
  };
}

async function readDeclarations(file: string): Promise<MetricDeclaration[]> {
  const module = (await import(pathToFileURL(file).href)) as { readonly METRICS?: MetricDeclarations }; // the convention of metrics.ts
  if (module.METRICS === undefined) throw new Error(`${file} exports no METRICS: the manual would not have its metrics`);
  return Object.values(module.METRICS);
}

function toRow(d: MetricDeclaration): string[] {
  const labels = Object.entries(d.labels).map(([label, values]) => `\`${label}\`: ${values.length === 0 ? "any" : values.join(", ")}`);
  return [`\`${d.name}\``, d.kind, labels.join("; "), d.help];
}
