/** Completion scripts: words and options from the command definitions, names of VMs, images and kernels from the daemon. */
import type { CommandDefinition } from "../command.ts";

export const SHELLS = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof SHELLS)[number];

export interface CompletionTree {
  readonly commands: readonly CommandDefinition[];
  readonly nouns: Readonly<Record<string, string>>;
}

const GLOBAL_FLAGS = ["--server", "--token-file", "--output", "--quiet", "--help"];

export function formatCompletion(shell: Shell, tree: CompletionTree): string {
  switch (shell) {
    case "bash":
      return formatBash(tree);
    case "zsh":
      // zsh runs bash completion functions, so that one script tells both.
      return `#compdef fluxctl\nautoload -Uz bashcompinit && bashcompinit\n${formatBash(tree)}`;
    case "fish":
      return formatFish(tree);
  }
}

function namesOf(definition: CommandDefinition): readonly string[] {
  return [definition.path.at(-1) ?? "", ...(definition.aliases ?? [])];
}

function longFlags(definition: CommandDefinition): string[] {
  return (definition.options ?? []).map((option) => /--[a-z0-9-]+/.exec(option.flags)?.[0] ?? "").filter((flag) => flag !== "");
}

/** What the first argument names, if the daemon can list it. */
function argumentNoun(definition: CommandDefinition): "vm" | "image" | "kernel" | undefined {
  const noun = /^<(vm|image|kernel)(\.\.\.)?>$/.exec(definition.arguments?.[0]?.name ?? "")?.[1];
  return noun === "vm" || noun === "image" || noun === "kernel" ? noun : undefined;
}

function topWords(tree: CompletionTree): string[] {
  return [
    ...tree.commands.filter((command) => command.path.length === 1).flatMap((command) => namesOf(command)),
    ...Object.keys(tree.nouns),
    "help",
    "completion",
  ];
}

function verbsOf(tree: CompletionTree, noun: string): string[] {
  return tree.commands.filter((command) => command.path.length === 2 && command.path[0] === noun).flatMap((command) => namesOf(command));
}

function formatBash(tree: CompletionTree): string {
  const verbCases = Object.keys(tree.nouns).map((noun) => `    "${noun}") words="${verbsOf(tree, noun).join(" ")}" ;;`);
  const leafCases = tree.commands.map((command) => {
    const paths = namesOf(command).map((name) => `"${[...command.path.slice(0, -1), name].join(" ")}"`);
    const noun = argumentNoun(command);
    return `    ${paths.join("|")}) flags="${[...longFlags(command), ...GLOBAL_FLAGS].join(" ")}"${noun === undefined ? "" : ` names=${noun}`} ;;`;
  });
  return `# bash completion for fluxctl
_fluxctl() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" path="" words="" flags="" names="" word i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    case "$word" in
      -*) continue ;;
      ${Object.keys(tree.nouns).join("|")}) [ -z "$path" ] && { path="$word"; continue; } ;;
    esac
    if [ -z "$path" ]; then path="$word"; break; fi
    path="$path $word"; break
  done
  case "$path" in
    "") words="${topWords(tree).join(" ")}" flags="${GLOBAL_FLAGS.join(" ")}" ;;
${verbCases.join("\n")}
${leafCases.join("\n")}
  esac
  if [ -n "$names" ] && [ "\${cur#-}" = "$cur" ]; then words="$(fluxctl "$names" list --output name --quiet 2>/dev/null)"; fi
  if [ "\${cur#-}" != "$cur" ]; then words="$flags"; fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  [ \${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$cur"))
}
complete -F _fluxctl fluxctl
`;
}

function formatFish(tree: CompletionTree): string {
  const lines = ["# fish completion for fluxctl", "complete -c fluxctl -f"];
  const quote = (text: string): string => `'${text.replaceAll("'", String.raw`\'`)}'`;
  const top = topWords(tree).join(" ");
  for (const [noun, about] of Object.entries(tree.nouns)) {
    lines.push(`complete -c fluxctl -n "not __fish_seen_subcommand_from ${top}" -a ${noun} -d ${quote(about)}`);
  }
  for (const command of tree.commands) {
    const [first = "", second] = command.path;
    const condition =
      second === undefined
        ? `not __fish_seen_subcommand_from ${top}`
        : `__fish_seen_subcommand_from ${first}; and not __fish_seen_subcommand_from ${verbsOf(tree, first).join(" ")}`;
    for (const name of namesOf(command)) lines.push(`complete -c fluxctl -n "${condition}" -a ${name} -d ${quote(command.summary)}`);
    const inside = command.path.map((word) => `__fish_seen_subcommand_from ${word}`).join("; and ");
    for (const flag of longFlags(command)) lines.push(`complete -c fluxctl -n "${inside}" -l ${flag.slice(2)}`);
    const noun = argumentNoun(command);
    if (noun !== undefined) lines.push(`complete -c fluxctl -n "${inside}" -a "(fluxctl ${noun} list --output name --quiet 2>/dev/null)"`);
  }
  for (const flag of GLOBAL_FLAGS) lines.push(`complete -c fluxctl -l ${flag.slice(2)}`);
  return `${lines.join("\n")}\n`;
}
