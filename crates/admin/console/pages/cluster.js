// @ts-check
// A server of several nodes: the nodes, and the clients of all of them. The daemon reads a page of the
// clients from the directory of the cluster when it is asked, and only then.

import { h } from "../vendor/preact.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { get } from "../api.js";
import { go } from "../store.js";
import { Card, Empty, Head, State, said } from "../parts/bits.js";
import { number, span } from "../parts/format.js";
import { Filter, Table } from "../parts/table.js";
import { t } from "../parts/text.js";

/** Between an answer about the nodes and the next look at them, which renew their records every 3 s. */
const AGAIN = 3000;
/** After the last key that was pressed. */
const TYPED = 300;
const PAGE = 100;

/** @typedef {import("../api-types.js").Cluster} Nodes */
/** @typedef {import("../api-types.js").ClusterClients["list"]} Found */

/** @param {{ begins: string, own: string }} props */
function Everyone({ begins, own }) {
  // `null`: not known.
  const [list, setList] = useState(/** @type {Found|null} */ (null));
  const [next, setNext] = useState(/** @type {string|null} */ (null));
  const [why, setWhy] = useState("");
  /** The latest question: answers to those before it are dropped. */
  const asked = useRef(/** @type {AbortController|null} */ (null));
  const read = async (/** @type {string} */ after, /** @type {Found} */ before) => {
    asked.current?.abort();
    const one = new AbortController();
    asked.current = one;
    const query = new URLSearchParams({ begins, after, limit: String(PAGE) });
    try {
      const page = await get(`/api/v1/cluster/clients?${query}`, one.signal);
      if (one.signal.aborted) return;
      setList([...before, ...page.list]);
      setNext(page.next ?? null);
      setWhy("");
    } catch (error) {
      if (one.signal.aborted) return;
      setWhy(said(error));
      // A failure of the first page leaves nothing that is known of these names.
      if (after === "") setList(null);
    }
  };
  useEffect(() => {
    // The next page of the former list is none of the new one.
    setNext(null);
    const timer = setTimeout(() => void read("", []), TYPED);
    return () => { clearTimeout(timer); asked.current?.abort(); };
  }, [begins]);
  return h(Card, { title: t("cluster.clients"), body: false },
    why && h("p", { class: "state bad", role: "alert" }, why),
    !list && !why && h("p", { class: "loading" }, t("loading")),
    list && h(Table, {
      label: t("cluster.clients"), rows: list, id: (one) => one.name, sort: ["name", 1],
      // A client of this node has a page with its links and services.
      onRow: (one) => one.nodes.some((/** @type {any} */ node) => node.here) && go(`#/clients/${encodeURIComponent(one.name)}`),
      none: h(Empty, { icon: "clients", title: t("cluster.clients.none") }),
      columns: [
        { key: "name", name: t("col.name"), all: true, bare: true, by: (one) => one.name, show: (one) => h("b", null, one.name) },
        { key: "nodes", name: t("cluster.nodes"), by: (one) => one.nodes[0].name, show: (one) => one.nodes.map((/** @type {any} */ node) => h("span", { key: node.name, class: "tag" }, node.name === own ? t("cluster.here", { node: node.name }) : node.name)) },
        { key: "links", name: t("col.links"), num: true, by: (one) => links(one), show: (one) => number(links(one)) },
      ],
    }),
    list && next !== null && h("div", { class: "foot" },
      h("button", { type: "button", class: "slim", onClick: () => void read(next, list) }, t("cluster.more"))));
}

/** @param {any} one */
const links = (one) => one.nodes.reduce((/** @type {number} */ sum, /** @type {any} */ node) => sum + (node.links ?? 0), 0);

/** @param {{ s: import("../store.js").State }} props */
export function Cluster({ s }) {
  const [nodes, setNodes] = useState(/** @type {Nodes|null} */ (null));
  const [begins, setBegins] = useState("");
  useEffect(() => {
    const gone = new AbortController();
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    let timer;
    // A look begins after the answer to the look before, so no answer replaces a later one.
    const look = async () => {
      try {
        const seen = await get("/api/v1/cluster", gone.signal);
        if (!gone.signal.aborted) setNodes(seen);
      } catch {
        // The frame says when the daemon is out of reach.
      }
      if (!gone.signal.aborted) timer = setTimeout(() => void look(), AGAIN);
    };
    void look();
    return () => { clearTimeout(timer); gone.abort(); };
  }, []);
  return h("div", { class: "stack" },
    h(Head, { title: t("nav.cluster"), end: h(Filter, { value: begins, onChange: setBegins, label: t("cluster.begins") }) }),
    nodes && !nodes.member && h("p", { class: "state warn", role: "status" }, nodes.report ?? t("cluster.away")),
    h(Card, { title: nodes ? t("cluster.of", { name: nodes.name }) : t("nav.cluster"), body: false }, nodes && h(Table, {
      label: t("cluster.nodes"), rows: nodes.nodes, id: (one) => one.name, sort: ["name", 1],
      columns: [
        { key: "name", name: t("col.name"), all: true, bare: true, by: (one) => one.name, show: (one) => [h("b", null, one.name === nodes.node ? t("cluster.here", { node: one.name }) : one.name), h("span", { class: "sub" }, (one.clients ?? []).join(" "))] },
        { key: "state", name: t("col.state"), by: (one) => one.draining, show: (one) => h(State, { word: one.draining ? "draining" : "up" }) },
        { key: "zone", name: t("cluster.zone"), by: (one) => one.zone, show: (one) => one.zone ?? "–" },
        { key: "links", name: t("cluster.links"), num: true, by: (one) => one.links, show: (one) => number(one.links) },
        { key: "known", name: t("cluster.known"), num: true, by: (one) => one.seconds, show: (one) => span(one.seconds) },
        { key: "program", name: t("cluster.program"), by: (one) => one.program, show: (one) => one.program ?? "–" },
      ],
    })),
    h(Everyone, { begins, own: nodes?.node ?? s.totals?.node ?? "" }));
}
