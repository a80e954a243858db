// Requests: how many each node answers of each API, and how long they take, as small multiples of the last five minutes.
import { get, h, number } from "./console.js";
import { svg, whileShown } from "./parts.js";

const POINTS_MAX = 150, PERIOD_MS = 2000, SPAN_MIN_MS = 60_000, SHOWN_MAX = 24, COLOURS = 6;
const history = new Map();  // API -> node -> points [time, requests a second, mean milliseconds or null]
let since = 0;

const rounded = (value) => value === undefined || value === null ? "–" : value >= 100 ? number(Math.round(value)) : value.toFixed(value >= 10 ? 1 : 2);

function take(answer) {
  since = answer.at_ms;
  for (const [api, nodes] of Object.entries(answer.apis)) {
    const known = history.get(api) ?? new Map();
    for (const [node, points] of Object.entries(nodes)) known.set(node, [...(known.get(node) ?? []), ...points].slice(-POINTS_MAX));
    history.set(api, known);
  }
}

// One line for each node; all charts begin at the same time, and each has a scale of its own.
function firstTime() {
  const oldest = Math.min(...[...history.values()].flatMap((nodes) => [...nodes.values()].map((points) => points[0][0])));
  return since - Math.max(SPAN_MIN_MS, Math.min(POINTS_MAX * PERIOD_MS, since - oldest));
}

function lines(nodes, index, order, label, from) {
  const now = since;
  const values = [...nodes.values()].flat().map((one) => one[index]).filter((one) => one !== null);
  const top = Math.max(...values, 0.001);
  const picture = svg("svg", { class: "multiple", viewBox: "0 0 300 40", preserveAspectRatio: "none", role: "img", "aria-label": `${label}, at most ${rounded(Math.max(...values, 0))}` });
  for (const [node, points] of nodes) {
    const drawn = points.filter((one) => one[index] !== null).map((one) => `${(300 * (one[0] - from) / (now - from)).toFixed(1)},${(38 - 36 * one[index] / top).toFixed(1)}`);
    if (drawn.length > 1) picture.append(svg("polyline", { class: `line n${order.indexOf(node) % COLOURS}`, points: drawn.join(" "), "vector-effect": "non-scaling-stroke" }));
  }
  return picture;
}

function card(api, nodes, order, from) {
  const last = [...nodes.values()].map((points) => points.at(-1)).filter((one) => one && one[0] > since - 3 * PERIOD_MS);
  const rate = last.reduce((sum, one) => sum + one[1], 0), timed = last.filter((one) => one[2] !== null);
  const mean = timed.length ? timed.reduce((sum, one) => sum + one[1] * one[2], 0) / timed.reduce((sum, one) => sum + one[1], 0) : null;
  return h("div", { class: "card", "data-api": api }, h("h2", {}, api),
    h("div", { class: "axis" }, h("span", {}, "a second"), h("span", {}, rounded(rate))), lines(nodes, 1, order, `${api}: requests a second`, from),
    h("div", { class: "axis" }, h("span", {}, "mean ms"), h("span", {}, rounded(mean))), lines(nodes, 2, order, `${api}: mean milliseconds`, from));
}

export function requestsPage() {
  const note = h("p", { class: "quiet" }, "…"), legend = h("div", { class: "legend" }), grid = h("div", { class: "multiples" });
  async function load() {
    const answer = await get(`/api/requests?since_ms=${since}`).catch((error) => ({ why_none: error.message }));
    if (answer.why_none) { note.textContent = answer.why_none; return; }
    take(answer);
    const order = [...new Set([...history.values()].flatMap((nodes) => [...nodes.keys()]))].sort((a, b) => a - b);
    const busy = (nodes) => [...nodes.values()].reduce((sum, points) => sum + points.reduce((all, one) => all + one[1], 0), 0);
    const apis = [...history].filter((one) => busy(one[1]) > 0).sort((a, b) => busy(b[1]) - busy(a[1])).slice(0, SHOWN_MAX);
    note.textContent = `Waiting is part of the time: a Fetch waits for records for up to half a second.${answer.missing.length ? ` No answer from node ${answer.missing.join(", ")}.` : ""}`;
    legend.replaceChildren(...order.map((node, at) => h("span", {}, h("span", { class: `swatch n${at % COLOURS}` }), `node ${node}`)));
    const from = firstTime();
    grid.replaceChildren(...apis.map(([api, nodes]) => card(api, nodes, order, from)));
  }
  load();
  const element = h("div", {}, h("h1", {}, "Requests"), note, legend, grid);
  whileShown(element, load, PERIOD_MS);
  return { element };
}
