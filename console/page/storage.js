// Where replicas lie: log directories with their sizes, and partitions that move between brokers and directories.
import { attempt, h, number, partitionOf, post, state, topicOf } from "./console.js";
import { cellOf, mayChange, previewed, readAgain, section, size, svg, table, topicLink, whileShown } from "./parts.js";

function bar(part, whole, label) {
  const picture = svg("svg", { class: "meter", viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": label });
  picture.append(svg("rect", { class: "ground", x: 0, y: 0, width: 100, height: 6 }), svg("rect", { class: "part", x: 0, y: 0, width: whole > 0 ? 100 * part / whole : 0, height: 6 }));
  return picture;
}

const movingHere = (one) => one.moving_here ? `${number(one.moving_here)} being moved here` : "";

function directoryCard(one) {
  const used = one.total_bytes - one.usable_bytes, replicas = `${number(one.replicas)} ${one.replicas === 1 ? "replica" : "replicas"}`;
  const topics = one.topics.slice(0, 12).map((row) => h("tr", {}, h("td", {}, topicLink(row.topic)), cellOf([row.replicas || !row.moving_here ? number(row.replicas) : "", movingHere(row)].filter(Boolean).join(", "), "replicas"), cellOf(size(row.size_bytes), "size")));
  return h("div", { class: "card" }, h("h2", {}, `Node ${one.broker}`), h("div", { class: "mono quiet" }, one.path),
    one.has_failed ? h("p", { class: "state down" }, "the directory has failed")
      : h("div", {}, h("p", {}, `${[`${replicas}, ${size(one.size_bytes)}`, movingHere(one)].filter(Boolean).join(", ")}; ${size(one.usable_bytes)} of the disk's ${size(one.total_bytes)} are free`), bar(used, one.total_bytes, `${size(used)} of ${size(one.total_bytes)} in use`)),
    topics.length ? table(["topic", "#replicas", "#size"], topics) : null, one.topics.length > 12 ? h("p", { class: "quiet" }, `and ${one.topics.length - 12} smaller topics`) : null);
}

const copiedCells = (one) => [h("td", { "data-label": "copied" }, `${size(one.copied_bytes)} of ${size(one.total_bytes)}`), h("td", {}, bar(one.copied_bytes, one.total_bytes, "copied"))];

function brokerMoves(moves, again) {
  const cancel = (one) => h("button", { onclick: async (event) => { if (await attempt(() => post("/api/reassignments/cancel", { topic: one.topic, partition: one.partition }), event.target)) again(); } }, "Cancel");
  return table(["partition", "adding", "removing", "copied", "", ""], moves.map((one) => h("tr", {},
    h("td", {}, topicLink(one.topic), `-${one.partition}`), h("td", { "data-label": "adding" }, one.adding.join(" ")), h("td", { "data-label": "removing" }, one.removing.join(" ")),
    copiedCells(one), h("td", {}, mayChange() ? cancel(one) : null))), { class: "wrap-narrow" });
}

function directoryMoves(moves) {
  return table(["between directories", "node", "from", "to", "copied", ""], moves.map((one) => h("tr", {},
    h("td", {}, topicLink(one.topic), `-${one.partition}`), h("td", { "data-label": "node" }, one.broker), h("td", { class: "mono", "data-label": "from" }, one.from), h("td", { class: "mono", "data-label": "to" }, one.to),
    copiedCells(one))), { class: "wrap-narrow" });
}

// The directories are read again when other moves are under way than before, so that both parts show the same.
function movesPart(onChange) {
  let before = "[]";
  const part = section("Moves under way", "/api/reassignments", (found) => {
    const now = JSON.stringify([...found.moves, ...found.directory_moves].map((one) => [one.topic, one.partition, one.broker, one.to]));
    if (now !== before) onChange();
    before = now;
    if (!found.moves.length && !found.directory_moves.length) return found.missing.length ? "" : null;
    return h("div", {}, found.moves.length ? brokerMoves(found.moves, () => readAgain(part.load)) : null, found.directory_moves.length ? directoryMoves(found.directory_moves) : null);
  }, "Nothing is moving.", { quiet: true });
  return part;
}

const MOVE = /^(.+)-(\d+)=(\d+(?:,\d+)*)$/;

function reassignCard(again) {
  const text = h("textarea", { "aria-label": "Moves", placeholder: "orders-0=2,3,1", required: true }), throttle = h("input", { type: "number", min: "1", placeholder: "none", size: "12" });
  const topic = h("input", { placeholder: "topic", list: "topics", "aria-label": "Topic" });
  const names = h("datalist", { id: "topics" }, [...new Set([...state.partitions.keys()].map(topicOf))].sort().map((one) => h("option", { value: one })));
  const fill = h("button", { type: "button", onclick: () => {
    const keys = [...state.partitions.keys()].filter((key) => topicOf(key) === topic.value).sort((a, b) => partitionOf(a) - partitionOf(b));
    text.value = keys.map((key) => `${topic.value}-${partitionOf(key)}=${state.partitions.get(key)[2].join(",")}`).join("\n");
    text.dispatchEvent(new Event("input", { bubbles: true }));
  } }, "Write down where it is now");
  const fields = () => {
    const lines = text.value.split(/\s+/).filter(Boolean).map((one) => one.match(MOVE) ?? one), wrong = lines.find((one) => typeof one === "string");
    text.setCustomValidity(wrong ? `${wrong} is not TOPIC-PARTITION=BROKER,BROKER` : "");
    if (!text.reportValidity()) return null;
    return { moves: lines.map(([, name, partition, replicas]) => ({ topic: name, partition: Number(partition), replicas: replicas.split(",").map(Number) })),
      ...(throttle.value ? { throttle: Number(throttle.value) } : {}) };
  };
  text.addEventListener("input", () => text.setCustomValidity(""));
  const told = (found) => table(["partition", "from", "to", "#to copy"], found.moves.map((one) => h("tr", {}, h("td", {}, `${one.topic}-${one.partition}`), h("td", { "data-label": "from" }, one.from.join(" ")),
    h("td", { "data-label": "to" }, one.to.join(" ")), cellOf(size(one.copied_bytes), "to copy"))), { class: "wrap-narrow" });
  const unthrottle = h("button", { type: "button", onclick: (event) => attempt(() => post("/api/reassignments/unthrottle"), event.target) }, "Remove all throttles");
  return h("details", { class: "card wide" }, h("summary", {}, "Move partitions to other brokers"),
    h("p", { class: "quiet" }, "A line for each partition; the first broker is the preferred leader. A throttle stays until it is removed."),
    h("div", { class: "row" }, h("label", {}, "Topic", topic), fill, unthrottle), names,
    previewed({ path: "/api/reassignments", fields, told, button: "Move them", done: again, inputs: [h("label", { class: "grow" }, "Moves", text), h("label", {}, "Throttle, bytes a second", throttle)] }));
}

export function storagePage() {
  const dirs = section("Log directories", "/api/log-dirs", (found) => h("div", { class: "grid" }, found.log_dirs.map(directoryCard)), ""), moves = movesPart(() => dirs.load());
  const element = h("div", {}, h("h1", {}, "Storage"), h("div", { class: "row" }, h("button", { onclick: () => { moves.load(); dirs.load(); } }, "Look again")),
    moves.element, mayChange() ? reassignCard(moves.load) : null, dirs.element);
  whileShown(element, moves.load, 2000);
  return { element };
}
