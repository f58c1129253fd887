// @ts-check
import { h } from "../vendor/preact.js";

/** A code that the daemon has made: black on white in either theme. @param {{ code: { size: number, path: string }, label: string }} props */
export const Qr = ({ code, label }) =>
  h("div", { class: "qr" },
    h("svg", { viewBox: `-2 -2 ${code.size + 4} ${code.size + 4}`, role: "img", "aria-label": label, "shape-rendering": "crispEdges" },
      h("path", { d: code.path })));
