/**
 * The database's schema as numbered steps. `user_version` holds the number of steps applied. A step is never changed
 * once released: add the next one.
 */
export const MIGRATIONS: readonly string[] = [
  `CREATE TABLE records (
     collection TEXT NOT NULL,
     key TEXT NOT NULL,
     value TEXT NOT NULL,
     version INTEGER NOT NULL,
     PRIMARY KEY (collection, key)
   ) WITHOUT ROWID;
   CREATE TABLE events (
     sequence INTEGER PRIMARY KEY AUTOINCREMENT,
     type TEXT NOT NULL,
     subject TEXT NOT NULL,
     wall_ms INTEGER NOT NULL,
     data TEXT NOT NULL
   );
   CREATE INDEX events_by_subject ON events (subject, sequence);`,
];

/** Events kept; older ones go as new ones come. */
export const EVENTS_KEPT = 100_000;

/** The steps still to do. `undefined`: a newer version wrote the database. */
export function planMigration(userVersion: number): readonly { readonly to: number; readonly sql: string }[] | undefined {
  if (userVersion > MIGRATIONS.length) return undefined;
  return MIGRATIONS.slice(userVersion).map((sql, i) => ({ to: userVersion + i + 1, sql }));
}
