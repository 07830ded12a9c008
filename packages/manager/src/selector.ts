/**
 * Label selectors: `k=v,k2!=v,k3,!k4`, all terms must hold. `k!=v` also holds for what has no label `k`.
 */
import { invalidField } from "@fluxvm/core";

export type SelectorTerm =
  | { readonly kind: "equals" | "differs"; readonly key: string; readonly value: string }
  | { readonly kind: "exists" | "absent"; readonly key: string };

const MAX_TERMS = 64;
const KEY = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/;
const MAX_VALUE_LENGTH = 255;

/** @throws PlatformError `REQUEST_INVALID` naming the term. */
export function parseSelector(text: string): readonly SelectorTerm[] {
  const parts = text.split(",");
  if (parts.length > MAX_TERMS) throw invalidField("label", `at most ${MAX_TERMS} terms`);
  return parts.map((part, i) => parseTerm(part.trim(), i + 1));
}

function parseTerm(term: string, number: number): SelectorTerm {
  if (term === "") throw invalidField("label", `term ${number} is empty`);
  const at = term.indexOf("=");
  if (at < 0) {
    const absent = term.startsWith("!");
    return { kind: absent ? "absent" : "exists", key: requireKey(absent ? term.slice(1) : term, term) };
  }
  const differs = term[at - 1] === "!";
  const key = requireKey(term.slice(0, differs ? at - 1 : at).trim(), term);
  const value = term.slice(at + 1).trim();
  if (value.length > MAX_VALUE_LENGTH) throw invalidField("label", `the value in ${quote(term)} is longer than ${MAX_VALUE_LENGTH}`);
  if (value.includes("=")) throw invalidField("label", `${quote(term)} has more than one "=": write key=value`);
  return { kind: differs ? "differs" : "equals", key, value };
}

function requireKey(key: string, term: string): string {
  if (KEY.test(key)) return key;
  throw invalidField("label", `${quote(key)} in ${quote(term)} is no label key: 1 to 63 of A-Z a-z 0-9 . _ / -`);
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, 80));
}

export function matchesSelector(terms: readonly SelectorTerm[], labels: Readonly<Record<string, string>>): boolean {
  return terms.every((term) => {
    const value = Object.hasOwn(labels, term.key) ? labels[term.key] : undefined;
    switch (term.kind) {
      case "equals":
        return value === term.value;
      case "differs":
        return value !== term.value;
      case "exists":
        return value !== undefined;
      case "absent":
        return value === undefined;
    }
  });
}
