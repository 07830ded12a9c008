/** `docs/manual/metrics.md` from every `src/metrics.ts` that exports `METRICS`. */
import { globSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { MetricDeclaration, MetricDeclarations } from "@fluxvm/telemetry";
import { formatTable, markGenerated, type Generator } from "../generator.ts";

const INTRO = `# Metrics

\`GET /metrics\` gives the daemon's metrics in the Prometheus text format. Each combination of the listed label values starts
at zero; a label marked "any" has a row from its first use on. Durations are in seconds, sizes in bytes.
`;

export function createMetricsPage(root: string): Generator {
  return {
    name: "metrics",
    async generate() {
      const files = globSync(["packages/*/src/metrics.ts", "apps/*/src/metrics.ts"], { cwd: root }).sort();
      const sections: string[] = [];
      for (const file of files) {
        const declarations = await readDeclarations(join(root, file));
        if (declarations === undefined) continue;
        sections.push(
          `\n## ${file.replace("/src/metrics.ts", "")}\n`,
          formatTable(["Metric", "Kind", "Labels", "Meaning"], declarations.map(toRow)),
        );
      }
      return { "docs/manual/metrics.md": [INTRO, markGenerated("each owner's `src/metrics.ts`"), ...sections, ""].join("\n") };
    },
  };
}

async function readDeclarations(file: string): Promise<MetricDeclaration[] | undefined> {
  const module = (await import(pathToFileURL(file).href)) as { readonly METRICS?: MetricDeclarations }; // the convention of metrics.ts
  return module.METRICS === undefined ? undefined : Object.values(module.METRICS);
}

function toRow(d: MetricDeclaration): string[] {
  const labels = Object.entries(d.labels).map(([label, values]) => `\`${label}\`: ${values.length === 0 ? "any" : values.join(", ")}`);
  return [`\`${d.name}\``, d.kind, labels.join("; "), d.help];
}
