/**
 * The machine's own Debian sources: both formats of sources.list(5), and of them what belongs to a suite. They are
 * written out again as deb822, which apt and mmdebstrap both read.
 */

export interface SourceEntry {
  readonly uris: readonly string[];
  readonly suites: readonly string[];
  readonly components: readonly string[];
  /** Fields that go along as they are: `Signed-By`, `Trusted`, `Check-Valid-Until`, … */
  readonly fields: readonly (readonly [name: string, value: string])[];
}

/** Options of a one-line entry and the fields they are called in deb822. */
const OPTION_FIELDS: Readonly<Record<string, string>> = {
  "signed-by": "Signed-By",
  trusted: "Trusted",
  "check-valid-until": "Check-Valid-Until",
  "valid-until-max": "Valid-Until-Max",
  "allow-insecure": "Allow-Insecure",
  "by-hash": "By-Hash",
};
const FIELD_NAMES = new Map(Object.values(OPTION_FIELDS).map((field) => [field.toLowerCase(), field]));
/** What a suite's packages are kept up to date from. */
const COMPANIONS = ["", "-security", "-updates", "/updates"];

/** One-line format: `deb [option=value …] uri suite component…`. Lines that are none are skipped, as apt's warnings are not ours. */
export function parseOneLineSources(text: string, architecture: string): SourceEntry[] {
  const entries: SourceEntry[] = [];
  for (const raw of text.split("\n")) {
    const line = raw.replace(/#.*$/, "").trim();
    const match = /^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)((?:\s+\S+)*)$/.exec(line);
    if (match === null) continue;
    const [, optionText = "", uri = "", suite = "", components = ""] = match;
    const options = optionText.split(/\s+/).flatMap((item) => {
      const equals = item.indexOf("=");
      return equals <= 0 ? [] : [[item.slice(0, equals).toLowerCase(), item.slice(equals + 1)] as const];
    });
    const limited = options.find(([name]) => name === "arch")?.[1];
    if (limited !== undefined && !limited.split(",").includes(architecture)) continue;
    const fields = options.flatMap(([name, value]) => {
      const field = OPTION_FIELDS[name];
      return field === undefined ? [] : [[field, value.replaceAll(",", " ")] as const];
    });
    entries.push({ uris: [uri], suites: [suite], components: components.split(/\s+/).filter((item) => item !== ""), fields });
  }
  return entries;
}

/** deb822 format: stanzas of fields, values continued on indented lines. */
export function parseDeb822Sources(text: string, architecture: string): SourceEntry[] {
  const entries: SourceEntry[] = [];
  const plain = text.split("\n").filter((line) => !line.startsWith("#"));
  for (const stanza of plain.join("\n").split(/\n\s*\n/)) {
    const fields = parseFields(stanza);
    const words = (name: string): string[] => (fields.get(name) ?? "").split(/\s+/).filter((item) => item !== "");
    if (!words("types").includes("deb") || /^(no|false|off|0)$/i.test((fields.get("enabled") ?? "yes").trim())) continue;
    const limited = words("architectures");
    if (limited.length > 0 && !limited.includes(architecture)) continue;
    const kept = [...FIELD_NAMES].flatMap(([key, name]) => {
      const value = fields.get(key);
      return value === undefined ? [] : [[name, value] as const];
    });
    entries.push({ uris: words("uris"), suites: words("suites"), components: words("components"), fields: kept });
  }
  return entries;
}

function parseFields(stanza: string): Map<string, string> {
  const fields = new Map<string, string>();
  let current: string | undefined;
  for (const line of stanza.split("\n")) {
    const continued = /^[ \t]/.test(line);
    const colon = line.indexOf(":");
    if (continued && current !== undefined) fields.set(current, `${fields.get(current) ?? ""}\n${line.replace(/\s+$/, "")}`);
    else if (!continued && colon > 0) {
      current = line.slice(0, colon).trim().toLowerCase();
      fields.set(current, line.slice(colon + 1).trim());
    }
  }
  return fields;
}

/** The entries of a suite with its updates and security updates, each cut down to those. */
export function selectSuite(entries: readonly SourceEntry[], suite: string): SourceEntry[] {
  const wanted = COMPANIONS.map((companion) => `${suite}${companion}`);
  const selected = entries.flatMap((entry) => {
    const suites = entry.suites.filter((name) => wanted.includes(name));
    const uris = entry.uris.filter((uri) => !uri.startsWith("cdrom:"));
    return suites.length === 0 || uris.length === 0 || entry.components.length === 0 ? [] : [{ ...entry, suites, uris }];
  });
  // Updates alone make no system.
  return selected.some((entry) => entry.suites.includes(suite)) ? selected : [];
}

export function formatDeb822(entries: readonly SourceEntry[]): string {
  return entries
    .map((entry) =>
      [
        "Types: deb",
        `URIs: ${entry.uris.join(" ")}`,
        `Suites: ${entry.suites.join(" ")}`,
        `Components: ${entry.components.join(" ")}`,
        ...entry.fields.map(([name, value]) => `${name}: ${value}`),
        "",
      ].join("\n"),
    )
    .join("\n");
}
