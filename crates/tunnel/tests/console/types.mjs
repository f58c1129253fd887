// Types of TypeScript from the schemas of the admin API: what the comments of the pages refer to.

/** The declarations of all schemas of a document. */
export function declarations(document) {
  const all = Object.entries(document.components.schemas);
  const lines = ["// Made from openapi.json.", ""];
  for (const [name, schema] of all) lines.push(`export type ${name} = ${type(schema)};`);
  return `${lines.join("\n")}\n`;
}

function type(schema) {
  if (schema === true || schema === undefined) return "unknown";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  if (schema.allOf) return schema.allOf.map((one) => `(${type(one)})`).join(" & ");
  if (schema.anyOf ?? schema.oneOf) return (schema.anyOf ?? schema.oneOf).map((one) => `(${type(one)})`).join(" | ");
  if (Array.isArray(schema.type)) return schema.type.map((one) => type({ ...schema, type: one })).join(" | ");
  switch (schema.type) {
    case "integer": case "number": return "number";
    case "string": return "string";
    case "boolean": return "boolean";
    case "null": return "null";
    case "array": return `(${type(schema.items)})[]`;
    case "object": return object(schema);
    default: return "unknown";
  }
}

function object(schema) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties ?? {})
    .map(([name, one]) => `${JSON.stringify(name)}${required.has(name) ? "" : "?"}: ${type(one)}`);
  const more = schema.additionalProperties;
  if (more && more !== true) return `Record<string, ${type(more)}>${fields.length > 0 ? ` & { ${fields.join("; ")} }` : ""}`;
  if (fields.length === 0) return "Record<string, any>";
  return `{ ${fields.join("; ")} }`;
}
