// Parts that several pages have.
import { attempt, get, h, number, post, state, time } from "./console.js";

export const mayChange = () => !state.about.is_read_only;

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, properties) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  return element;
}

export const table = (heads, rows, properties = {}) => h("div", { class: "scroll" }, h("table", properties,
  h("thead", {}, h("tr", {}, heads.map((one) => h("th", one.startsWith("#") ? { class: "n" } : {}, one.replace("#", ""))))),
  h("tbody", {}, rows)));

export const cellOf = (text, label) => h("td", { class: "n", "data-label": label }, text);
export const topicLink = (name) => h("a", { href: `#/topics/${encodeURIComponent(name)}` }, name);
export const groupLink = (name) => h("a", { href: `#/groups/${encodeURIComponent(name)}` }, name);

export function lineChart(title, points, index, unit, span = "five minutes") {
  const values = points.map((one) => one[index]);
  const top = Math.max(...values, 1);
  const picture = svg("svg", { class: "chart", viewBox: "0 0 300 80", preserveAspectRatio: "none", role: "img",
    "aria-label": `${title}: ${number(values.at(-1) ?? 0)} ${unit}, at most ${number(Math.max(...values, 0))}` });
  const first = 300 - values.length;
  const line = values.map((value, at) => `${first + at},${(76 - 72 * value / top).toFixed(1)}`).join(" ");
  if (values.length > 1) {
    picture.append(svg("polygon", { class: "area", points: `${first},78 ${line} 299,78` }));
    picture.append(svg("polyline", { class: "line", points: line, "vector-effect": "non-scaling-stroke" }));
  }
  return h("div", { class: "card" }, h("h2", {}, `${title}, ${span}`), picture,
    h("div", { class: "axis" }, h("span", {}, `now ${number(Math.round(values.at(-1) ?? 0))} ${unit}`),
      h("span", {}, `at most ${number(Math.round(Math.max(...values, 0)))}`)));
}

export function nodeCard(node, buttons) {
  const memory = node.memory_bytes ? `, ${Math.round(node.memory_bytes / 2 ** 20)} MiB` : "";
  return h("div", { class: "card" },
    h("div", {}, h("b", { class: `state ${node.state}` }, `Node ${node.node}`), node.controller ? h("span", { class: "badge" }, "active controller") : null),
    h("div", { class: "quiet mono" }, [node.address, node.rack ? `rack ${node.rack}` : ""].filter(Boolean).join("  ")),
    h("div", {}, node.why ? `${node.state}: ${node.why}` : node.state + (node.pid ? `, process ${node.pid}${memory}` : "")),
    node.faults?.length ? h("div", { class: "fault" }, node.faults.join(", ")) : null,
    h("div", { class: "quiet" }, `leads ${number(node.leads)}, in sync ${number(node.in_sync)} of ${number(node.replicas)}`),
    buttons ?? null);
}

export function storyCard() {
  const list = h("ol", { class: "story" });
  let shown = 0, last = null;
  return {
    element: h("div", { class: "card" }, h("h2", {}, "What happened"), list),
    update() {
      if (state.story.length === shown && state.story.at(-1) === last) return;
      shown = state.story.length;
      last = state.story.at(-1);
      const lines = state.story.slice(-200).reverse();
      list.replaceChildren(...(lines.length ? lines.map(([ms, text]) => h("li", {}, h("time", {}, time(ms)), h("span", {}, text)))
        : [h("li", { class: "quiet" }, "Nothing yet. Changes of leaders, in-sync replicas and nodes appear here.")]));
    },
  };
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
export function size(bytes) {
  if (bytes === null || bytes === undefined || bytes < 0) return "–";
  let value = bytes, unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export const ago = (ms) => {
  const seconds = Math.max(Math.round((Date.now() - ms) / 1000), 0);
  return seconds < 120 ? `${seconds} s ago` : seconds < 7200 ? `${Math.round(seconds / 60)} min ago`
    : seconds < 172_800 ? `${Math.round(seconds / 3600)} h ago` : `${number(Math.round(seconds / 86_400))} days ago`;
};

// A small picture of the last values of something, without axes.
export function sparkline(values, label) {
  const top = Math.max(...values, 1), width = 120, step = width / Math.max(values.length - 1, 1);
  const picture = svg("svg", { class: "spark", viewBox: `0 0 ${width} 24`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  if (values.length > 1) {
    const line = values.map((value, at) => `${(at * step).toFixed(1)},${(22 - 20 * value / top).toFixed(1)}`).join(" ");
    picture.append(svg("polyline", { class: "line", points: line, "vector-effect": "non-scaling-stroke" }));
  }
  return picture;
}

// A part of a page that is read from the console: `read` gets the answer, `show` makes the elements of it.
export function section(title, path, showAnswer, empty, options = {}) {
  const box = h("div", {}, "…");
  let last = null, why = "";
  function redraw() {
    if (last) box.replaceChildren(showAnswer(last) ?? h("p", { class: "quiet" }, empty), ...(last.missing ?? []).map((one) => h("p", { class: "quiet" }, `incomplete: ${one}`)));
  }
  async function load() {
    const asked = get(path).catch((error) => { why = error.message; throw error; });
    const found = options.quiet || !last ? await asked.catch(() => null) : await attempt(() => asked);
    last = found ?? last;
    if (last) redraw();
    else box.replaceChildren(h("p", { class: "warn small" }, why));
  }
  load();
  return { element: h("div", { class: "card wide" }, h("h2", {}, title), box), load, redraw };
}

// Repeats something while its element is on the page, but not before it has ended: a broker that does not answer takes longer than the period.
export function whileShown(element, work, periodMs) {
  let isUnderWay = false;
  const timer = setInterval(async () => {
    if (!element.isConnected) clearInterval(timer);
    else if (!isUnderWay) {
      isUnderWay = true;
      try { await work(); } finally { isUnderWay = false; }
    }
  }, periodMs);
}

// Reads what was changed now and a little later, since a broker shows a change only when it has heard of it.
export function readAgain(load) {
  load();
  for (const afterMs of [700, 3000]) setTimeout(load, afterMs);
}

// A change that is shown before it is made: the form asks what would change, a second button makes exactly that.
export function previewed({ fields, path, told, button, inputs, done }) {
  const result = h("div"), make = h("button", { type: "button", class: "danger", disabled: true, onclick: () => execute() }, button);
  let body = null;  // what was asked for last, and what the button executes; null once a field has changed
  async function ask(asked, execute) {
    const found = await attempt(() => post(path, { ...asked, execute }), form);
    if (!found && body === asked) body = null;
    make.disabled = body === null;
    if (!found || (!execute && body !== asked)) return;  // the answer is not about what the fields say now
    result.replaceChildren(h("p", { class: "quiet" }, execute ? "It is done:" : "Nothing is changed yet. This would be:"), told(found));
    if (execute) readAgain(done);
  }
  function execute() {
    const asked = body;
    body = null;
    ask(asked, true);
  }
  const form = h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); body = fields(); if (body) ask(body, false); },
    oninput: () => { body = null; make.disabled = true; } }, inputs, h("button", {}, "Show what would change"), make);
  return h("div", {}, form, result);
}

// The same for a row of a table: its button shows the change below the table, where it is made.
export function previewOf(place, { path, fields, told, button, done }) {
  return async (event) => {
    const found = await attempt(() => post(path, { ...fields, execute: false }), event.target);
    if (!found) return;
    const make = h("button", { type: "button", class: "danger", onclick: async () => {
      const made = await attempt(() => post(path, { ...fields, execute: true }), make);
      if (made) { place.replaceChildren(h("p", { class: "quiet" }, "It is done:"), told(made)); readAgain(done); }
    } }, button);
    place.replaceChildren(h("p", { class: "quiet" }, "Nothing is changed yet. This would be:"), told(found),
      h("div", { class: "buttons" }, make, h("button", { type: "button", onclick: () => place.replaceChildren() }, "Leave it")));
    make.focus();
  };
}

export const pick = (names, properties = {}) => h("select", properties, names.map((one) => Array.isArray(one) ? h("option", { value: one[0] }, one[1]) : h("option", {}, one)));
