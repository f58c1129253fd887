// @ts-check
// A kept request as a line for a shell. Everything in it is a visitor's text: each word is quoted, and
// no word of a visitor may be read as an option, as the name of a file, or as a pattern.

/** @typedef {import("../api-types.js").HttpMessage} Message */

/** Fields of one connection, or that the server writes anew. */
const LEFT_OUT = new Set([
  "host", "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection", "upgrade", "te", "trailer", "expect",
  "forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip",
]);

/** Fields that curl adds by itself. */
const OWN = ["accept", "user-agent"];

/** A word of a POSIX shell. @param {string} text */
export const quote = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** Blanks in the place of control characters: a terminal would act on them. @param {string} text */
// eslint-disable-next-line no-control-regex
const plain = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f]/g, " ");

/** The origin that visitors use. @param {string} host what the request names @param {string[]} addresses those of the service */
export function origin(host, addresses) {
  const names = addresses.filter((one) => /^https?:\/\//.test(one) && !one.includes("*")).map((one) => one.replace(/(:\/\/[^/]*).*/, "$1"));
  const bare = (/** @type {string} */ text) => text.replace(/^.*:\/\//, "").replace(/:\d+$/, "").toLowerCase();
  const same = names.find((one) => bare(one) === bare(host));
  if (same) return same;
  const secure = addresses.some((one) => /^https:\/\/\*/.test(one));
  return names[0] ?? `${secure ? "https" : "http"}://${/^[\w.:[\]-]+$/.test(host) ? host : "localhost"}`;
}

/**
 * The line. Without a whole body it has none.
 *
 * @param {Message} request
 * @param {string[]} addresses the public addresses of the service
 */
export function curl(request, addresses) {
  const [method = "GET", target = "/"] = plain(request.line).split(" ");
  /** @param {string} name */
  const value = (name) => request.fields.find((one) => one.name.toLowerCase() === name)?.value;
  const base = origin(value("host") ?? "", addresses);
  // A target in absolute form names a host of the visitor's choice.
  const path = target.replace(/^https?:\/\/[^/?#]*/i, "");
  const words = ["curl", "--globoff", "--path-as-is"];
  const { body } = request;
  const has = body.bytes > 0 && !body.cut && !body.left_out;
  if (method === "HEAD") words.push("--head");
  else if (method !== (has ? "POST" : "GET")) words.push("--request", quote(method));
  if (/^(\/[\w\-.~!$&'()*+,;=:@%/?]*)?$/.test(path)) words.push("--url", quote(base + path));
  else words.push("--request-target", quote(path), "--url", quote(`${base}/`));
  /** @type {Set<string>} */
  const names = new Set();
  for (const { name, value: text } of request.fields) {
    const lower = name.toLowerCase();
    names.add(lower);
    if (LEFT_OUT.has(lower) || !/^[\w!#$%&'*+.^`|~-]+$/.test(name)) continue;
    // A field without a value needs another sign: `Name:` takes a field of curl's own away.
    words.push("--header", quote(text === "" ? `${name};` : `${name}: ${plain(text)}`));
  }
  for (const name of [...OWN, ...(has ? ["content-type"] : [])]) if (!names.has(name)) words.push("--header", quote(`${name}:`));
  if (!has) return words.join(" ");
  // `--data-raw` reads no file, whatever the body begins with.
  // eslint-disable-next-line no-control-regex
  if (body.text !== undefined && !/[\u0000-\u0009\u000b-\u001f]/.test(body.text)) return [...words, "--data-raw", quote(body.text)].join(" ");
  const base64 = body.base64 ?? toBase64(body.text ?? "");
  return `printf %s ${quote(base64)} | base64 -d | ${[...words, "--data-binary", "@-"].join(" ")}`;
}

/** @param {string} text */
function toBase64(text) {
  let all = "";
  for (const byte of new TextEncoder().encode(text)) all += String.fromCharCode(byte);
  return btoa(all);
}
