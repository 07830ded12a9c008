/** Columns of text, as wide as their widest cell. */
import { sanitise } from "./text.ts";

export interface Column<Item> {
  readonly title: string;
  readonly value: (item: Item) => string | number | undefined;
}

const GAP = "  ";

export function formatTable<Item>(items: readonly Item[], columns: readonly Column<Item>[]): string {
  const rows = items.map((item) => columns.map((column) => formatCell(column.value(item))));
  return formatRows([columns.map((column) => column.title), ...rows]);
}

/** One record as `KEY  value` lines; fields without a value are left out. */
export function formatRecord<Item>(item: Item, columns: readonly Column<Item>[]): string {
  const rows = columns
    .map((column) => [column.title, column.value(item)] as const)
    .filter(([, value]) => value !== undefined && value !== "");
  return formatRows(rows.map(([title, value]) => [title, formatCell(value)]));
}

function formatCell(value: string | number | undefined): string {
  const text = sanitise(String(value ?? ""));
  return text === "" ? "-" : text;
}

function formatRows(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => (row[i] ?? "").length)));
  return rows
    .map(
      (row) =>
        `${row
          .map((cell, i) => cell.padEnd(widths[i] ?? 0))
          .join(GAP)
          .trimEnd()}\n`,
    )
    .join("");
}
