// @ts-check
// Icons: lines in a square of 24. They are decoration; the text beside them says what they mean.

import { h } from "../vendor/preact.js";

/** @type {Record<string, string>} */
const PATHS = {
  overview: "M4 13h6V4H4zM14 20h6v-9h-6zM14 4v3h6V4zM4 17v3h6v-3z",
  clients: "M4 5h16v10H4zM9 19h6M12 15v4",
  services: "M5 7h10M12 4l3 3-3 3M19 17H9M12 14l-3 3 3 3",
  streams: "M3 8c3-4 6 4 9 0s6 4 9 0M3 16c3-4 6 4 9 0s6 4 9 0",
  log: "M5 6h14M5 10h14M5 14h9M5 18h11",
  cluster: "M5 4h6v6H5zM13 4h6v6h-6zM9 14h6v6H9zM8 10l4 4 4-4",
  config: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  tools: "M3 12h4l3-7 4 14 3-7h4",
  certificates: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6zM9 12l2 2 4-4",
  settings: "M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM12 3v3M12 18v3M3 12h3M18 12h3M5.6 5.6l2.2 2.2M16.2 16.2l2.2 2.2M5.6 18.4l2.2-2.2M16.2 7.8l2.2-2.2",
  requests: "M4 5h16v14H4zM4 9h16M8 13h5M8 16h8",
  more: "M5 11h2v2H5zM11 11h2v2h-2zM17 11h2v2h-2z",
  search: "M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12zM15.5 15.5L20 20",
  warn: "M12 4l9 16H3zM12 10v4M12 17h.01",
  bad: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 8v5M12 16h.01",
  good: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM8 12l3 3 5-6",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h10v11H9zM5 15V4h10",
  plus: "M12 5v14M5 12h14",
  moon: "M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4",
  keys: "M3 7h18v10H3zM7 11h.01M11 11h.01M15 11h.01M8 14h8",
  pause: "M9 6v12M15 6v12",
  play: "M8 5l11 7-11 7z",
  unplug: "M4 20l4-4M9 11l4 4M8 12l-1 1a3 3 0 0 0 4 4l1-1M12 8l1-1a3 3 0 0 1 4 4l-1 1M17 7l3-3",
};

/** @param {{ name: string }} props */
export const Icon = ({ name }) =>
  h("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, h("path", { d: PATHS[name] ?? PATHS.more }));

/** The mark beside the product's name. */
export const Mark = () =>
  h("svg", { viewBox: "0 0 32 32", "aria-hidden": "true" },
    h("rect", { class: "tile", width: 32, height: 32, rx: 7 }),
    h("path", { class: "arch", d: "M7 24v-6a9 9 0 0 1 18 0v6M13 24v-6a3 3 0 0 1 6 0v6" }));
