// @ts-check
// Lists that come whole at first, and then as what has changed since the line before.

/**
 * A list; `revision` is the number of its last line, where lines have one.
 * @template T
 * @typedef {{ unix_millis: number, total: number, revision?: number, list: T[] }} Rows
 */

/** The name of a row within its list: the number of a service or of a stream, or a client. @param {any} row @returns {string} */
const key = (row) => row.id ?? row.name;

/** Notes when rows came: seconds since an event go on from there. @param {any[]} rows @param {any} line */
export const stamp = (rows, line) => rows.forEach((row) => { row.told = line.unix_millis; });

/**
 * A list after a line: the whole of it, or what has changed since the line before. `null`: the line
 * before is missing.
 * @param {Rows<any>|null} was @param {any} line @returns {Rows<any>|null}
 */
export function listed(was, line) {
  const { unix_millis, total, revision } = line;
  stamp(line.list, line);
  if (line.whole !== false) return { unix_millis, total, revision, list: line.list };
  if (!was || was.revision !== line.after) return null;
  if (line.list.length === 0 && !line.gone?.length) return { ...was, unix_millis, total, revision };
  const rows = new Map(was.list.map((row) => [key(row), row]));
  for (const name of line.gone ?? []) rows.delete(name);
  for (const row of line.list) rows.set(key(row), row);
  return { unix_millis, total, revision, list: [...rows.values()] };
}
