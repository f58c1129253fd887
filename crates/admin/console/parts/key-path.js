// @ts-check
// Which key of the configuration the cursor is at. Block style is read by its indentation, a flow
// map as far as it stands on one line. Whatever else a file has gives no key, or one that nobody knows.

const KEY = /^("[^"\\]*"|'[^']*'|[\w.*/-]+)\s*:(?=\s|$)/;
const TOKEN = /"(?:\\.|[^"\\])*":?|'(?:''|[^'])*':?|\s#.*|[{}[\],]|[^\s{}[\],]+/g;

/** @param {string} text */
const bare = (text) => text.replace(/^(["'])(.*)\1$/, "$2");

/** The dashes, the key and the value of a line in block style. @param {string} line */
function parts(line) {
  if (/^\s*(#|$)/.test(line) || line.includes("\t")) return null;
  let at = line.length - line.trimStart().length;
  const dashes = [];
  for (let dash; (dash = /^-(\s+|$)/.exec(line.slice(at))); at += dash[0].length) dashes.push(at);
  const key = KEY.exec(line.slice(at));
  const value = at + (key?.[0].length ?? 0);
  const rest = line.slice(value).replace(/(^|\s)#.*/, "").trim();
  // Behind an anchor or a tag, the value is in the lines below as well.
  return { dashes, column: at, name: key && bare(key[1]), value, isOpen: rest === "" || /^[&!]\S*$/.test(rest) };
}

/** The keys, from the outermost one, of the entry of a flow map that has the cursor. @param {string} text of the value @param {number} cursor in it */
function inFlow(text, cursor) {
  /** @type {{ key: string|null, from: number }[]} */
  const open = [];
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    const last = open.at(-1);
    if (last && /^[}\],]$/.test(token)) {
      // The entry ends, after all entries in it.
      if (cursor >= last.from && cursor <= index) return open.flatMap((one) => one.key ?? []);
      if (token === ",") Object.assign(last, { key: null, from: index + 1 });
      else open.pop();
    } else if (token === "{" || token === "[") open.push({ key: null, from: index + 1 });
    else if (last?.key === null && token.endsWith(":")) last.key = bare(token.slice(0, -1));
    if (open.length === 0) break;
  }
  return [];
}

/**
 * The path of the key at a position of the text, without marks for lists: `clients.limits.streams`.
 *
 * @param {string} text @param {number} position
 */
export function pathAt(text, position) {
  const lines = text.split("\n");
  const before = text.slice(0, position).split("\n");
  const line = lines[before.length - 1];
  const own = parts(line);
  if (!own) return null;
  const path = [...(own.name === null ? [] : [own.name]), ...inFlow(line.slice(own.value), before[before.length - 1].length - own.value)];
  let left = own.dashes[0] ?? own.column;
  let isItem = own.dashes.length > 0;
  for (let at = before.length - 2; at >= 0 && (left > 0 || isItem); at -= 1) {
    const above = parts(lines[at]);
    if (!above) continue;
    // The dashes of a list may be below the first letter of its key.
    if (above.name !== null && (above.column < left || (isItem && above.column === left && above.dashes.length === 0))) {
      if (!above.isOpen) return null;
      path.unshift(above.name);
      [left, isItem] = [above.column, false];
    }
    if (above.dashes.some((dash) => dash < left)) {
      if (above.name === null && !above.isOpen) return null;
      [left, isItem] = [above.dashes[0], true];
    }
  }
  return path.length > 0 ? path.join(".") : null;
}
