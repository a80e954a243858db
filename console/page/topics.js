// Topics: the list, and a topic with its partitions, records and settings.
import { attempt, get, h, number, post, show, state, stateOf, topicOf } from "./console.js";
import { cellOf, mayChange, table, topicLink, whileShown } from "./parts.js";

const DATE_MAX_MS = 8.64e15;
const DEPTH_SHOWN = 40;  // levels of JSON that are indented: a record of brackets alone would fill the memory

function createTopicForm() {
  const name = h("input", { required: true, pattern: "[A-Za-z0-9._\\-]+", maxlength: "249" });
  const count = h("input", { type: "number", min: "1", value: "3" }), factor = h("input", { type: "number", min: "1", placeholder: "default" });
  const configs = h("input", { placeholder: "retention.ms=60000 cleanup.policy=compact", size: "36" });
  const form = h("form", { class: "row", onsubmit: async (event) => {
    event.preventDefault();
    const pairs = configs.value.trim().split(/\s+/).filter(Boolean).map((one) => [one.split("=")[0], one.slice(one.indexOf("=") + 1)]);
    const done = await attempt(() => post("/api/topics", { name: name.value, partitions: Number(count.value || -1),
      replication_factor: Number(factor.value || -1), configs: Object.fromEntries(pairs) }), form);
    if (done) form.reset();
  } }, h("label", {}, "Name", name), h("label", {}, "Partitions", count), h("label", {}, "Replication factor", factor),
  h("label", {}, "Settings", configs), h("button", { class: "go" }, "Create topic"));
  return h("details", { class: "card wide" }, h("summary", {}, "Create a topic"), form);
}

export function topicsPage() {
  const filter = h("input", { placeholder: "Filter by name ( / )", "aria-label": "Filter by name", "data-filter": "1", oninput: () => page.update() });
  const internal = h("input", { type: "checkbox", onchange: () => page.update() });
  const box = h("div", { class: "card" });
  const page = {
    element: h("div", {}, h("h1", {}, "Topics"), mayChange() ? createTopicForm() : null,
      h("div", { class: "row" }, filter, h("label", { class: "row" }, internal, "internal topics")), box),
    update() {
      const topics = new Map();
      for (const [key, row] of state.partitions) {
        const name = topicOf(key);
        if (!name.includes(filter.value) || (name.startsWith("__") && !internal.checked)) continue;
        const one = topics.get(name) ?? { count: 0, troubled: 0, offline: 0, end: 0, few: Infinity, many: 0 };
        one.count += 1;
        one.troubled += stateOf(row) !== "in-sync";
        one.offline += row[0] < 0;
        one.end += Math.max(row[4], 0);
        one.few = Math.min(one.few, row[2].length);
        one.many = Math.max(one.many, row[2].length);
        topics.set(name, one);
      }
      const rows = [...topics].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, one]) => h("tr", {}, h("td", {}, topicLink(name)),
        cellOf(number(one.count), "partitions"), cellOf(one.few === one.many ? number(one.many) : `${number(one.few)} to ${number(one.many)}`, "replicas each"), cellOf(number(one.end), "records written"),
        cellOf(number(Math.round(state.rates.get(name) ?? 0)), "a second"),
        h("td", {}, h("span", { class: `state ${one.offline ? "down" : one.troubled ? "late" : ""}` },
          one.offline ? `${one.offline} without a leader` : one.troubled ? `${one.troubled} under-replicated` : "in sync"))));
      box.replaceChildren(rows.length ? table(["topic", "#partitions", "#replicas each", "#records written", "#a second", "state"], rows, { class: "wrap-narrow" })
        : h("p", { class: "quiet" }, filter.value ? "No topic has such a name." : "There are no topics yet."));
    },
  };
  return page;
}

function shown(part) {
  if (part === null) return h("span", { class: "quiet" }, "null");
  const note = part.note ?? part.how;
  return note ? h("div", {}, textOf(part), h("div", { class: `quiet small${part.note ? " warn" : ""}` }, note)) : textOf(part);
}

// JSON with indentation; what only looks like it as it is. Numbers stay texts: JavaScript would round those of more than 53 bits.
function indented(text) {
  try { JSON.parse(text); } catch { return text; }
  let depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, DEPTH_SHOWN))}`;
  return text.replace(/"(?:[^"\\]|\\.)*"|\{\s*\}|\[\s*\]|[{}[\],:]|\s+/g, (one) => {
    if (one[0] === '"') return JSON.stringify(JSON.parse(one));
    if (one === "{" || one === "[") { depth += 1; return one + line(); }
    if (one === "}" || one === "]") { depth -= 1; return line() + one; }
    return one === "," ? one + line() : one === ":" ? ": " : one.replace(/\s+/g, "");
  });
}

// A timestamp in UTC; a producer may send any number, which may be none of JavaScript's dates.
function timestampText(ms) {
  if (ms < 0) return "–";
  return ms > DATE_MAX_MS ? `${ms} ms` : new Date(ms).toISOString().replace("T", " ").replace("Z", "");
}

function textOf(part) {
  if (part.base64 !== undefined) return h("pre", { title: `${part.size} bytes that are no text, in base 64` }, part.base64);
  const text = /^\s*[[{]/.test(part.text) ? indented(part.text) : part.text;
  const rest = part.size > 20000 ? `\n… ${number(part.size)} bytes in all` : "";
  return h("pre", {}, text + rest);
}

function recordsCard(topic, count) {
  const partition = h("select", {}, h("option", { value: "" }, "all"), [...Array(count).keys()].map((one) => h("option", {}, String(one))));
  const from = h("select", { onchange: () => { at.hidden = !["offset", "time"].includes(from.value); at.required = !at.hidden; at.type = from.value === "time" ? "datetime-local" : "number"; at.step = "1"; } },
    h("option", { value: "latest" }, "the last"), h("option", { value: "earliest" }, "the first"), h("option", { value: "offset" }, "from offset"), h("option", { value: "time" }, "from time (UTC)"));
  const at = h("input", { type: "number", min: "0", hidden: true, "aria-label": "Offset or time" });
  const limit = h("select", {}, ["20", "50", "200", "500"].map((one) => h("option", {}, one)));
  const text = h("input", { placeholder: "key, value or header contains", "aria-label": "Key, value or header contains", "data-filter": "1" });
  const result = h("div");
  const form = h("form", { class: "row", onsubmit: async (event) => {
    event.preventDefault();
    const start = from.value === "time" ? `time:${new Date(`${at.value}Z`).getTime()}` : from.value === "offset" ? `offset:${at.value}` : from.value;
    const query = new URLSearchParams({ from: start, limit: limit.value, text: text.value, partition: partition.value });
    const found = await attempt(() => get(`/api/topics/${encodeURIComponent(topic)}/records?${query}`), form);
    if (!found) return;
    const rows = found.records.map((one) => h("tr", {}, cellOf(String(one.partition), "partition"), cellOf(number(one.offset), "offset"),
      h("td", { class: "quiet mono" }, timestampText(one.timestamp)),
      h("td", {}, shown(one.key)), h("td", {}, shown(one.value), one.headers.map(([name, value]) => h("div", { class: "quiet" }, `${name}: `, shown(value))))));
    const note = `${number(found.records.length)} of ${number(found.looked_through)} records looked at${found.is_cut ? "; there may be more" : ""}`;
    result.replaceChildren(h("p", { class: "quiet" }, note), ...found.missing.map((one) => h("p", { class: "quiet" }, `incomplete: ${one}`)), rows.length ? table(["#partition", "#offset", "time (UTC)", "key", "value"], rows, { class: "wrap-narrow" }) : "");
  } }, h("label", {}, "Show", from), at, h("label", {}, "Records", limit), h("label", {}, "Partition", partition), h("label", {}, "Filter", text), h("button", { class: "go" }, "Read"));
  return h("div", { class: "card wide" }, h("h2", {}, "Records"), form, result);
}

function produceCard(topic, count) {
  const key = h("input", { placeholder: "null" }), value = h("textarea", { required: true, "aria-label": "Value" });
  const partition = h("select", {}, h("option", { value: "" }, "by key"), [...Array(count).keys()].map((one) => h("option", {}, String(one))));
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    await attempt(async () => {
      const fields = { key: key.value || null, value: value.value };
      if (partition.value) fields.partition = Number(partition.value);
      const done = await post(`/api/topics/${encodeURIComponent(topic)}/records`, fields);
      return { done: `committed at offset ${done.offset} of partition ${done.partition}` };
    }, form);
  } }, h("div", { class: "row" }, h("label", {}, "Key", key), h("label", {}, "Partition", partition), h("button", { class: "go" }, "Produce")), value);
  return h("details", { class: "card wide" }, h("summary", {}, "Produce a record"), form);
}

function settingsCard(topic, configs, whyNone, again) {
  if (whyNone) return h("div", { class: "card wide" }, h("h2", {}, "Settings"), h("p", { class: "quiet" }, whyNone));
  const rows = configs.map((one) => {
    const input = h("input", { value: one.value ?? "", size: "22", "aria-label": one.name });
    const row = h("tr", {}, h("td", { class: "mono", title: one.help ?? "" }, one.name, one.is_own ? h("span", { class: "badge" }, "set here") : null), h("td", {}, mayChange() ? input : one.value ?? ""),
      h("td", {}, mayChange() ? [
        h("button", { type: "button", onclick: async () => { if (await attempt(() => post(path, { set: { [one.name]: input.value } }), row)) again(); } }, "Set"), " ",
        one.is_own ? h("button", { type: "button", onclick: async () => { if (await attempt(() => post(path, { reset: [one.name] }), row)) again(); } }, "Reset") : null,
      ] : null));
    return row;
  });
  const path = `/api/topics/${encodeURIComponent(topic)}/configs`;
  return h("details", { class: "card wide" }, h("summary", {}, `Settings (${configs.filter((one) => one.is_own).length} set here)`), table(["name", "value", ""], rows));
}

function dangerCard(topic, count) {
  const grow = h("input", { type: "number", min: String(count + 1), value: String(count + 1) }), typed = h("input", { placeholder: topic, "aria-label": "Name of the topic" });
  const growing = h("form", { class: "row", onsubmit: async (event) => {
    event.preventDefault();
    if (await attempt(() => post(`/api/topics/${encodeURIComponent(topic)}/partitions`, { count: Number(grow.value) }), growing)) show();
  } }, h("label", {}, "Partitions; keys will map to others", grow), h("button", {}, "Add partitions"));
  const deleting = h("form", { class: "row", onsubmit: async (event) => {
    event.preventDefault();
    if (typed.value !== topic) return;
    if (await attempt(() => post(`/api/topics/${encodeURIComponent(topic)}/delete`), deleting)) location.hash = "#/topics";
  } }, h("label", {}, "Type the topic's name to delete it with its records", typed), h("button", { class: "danger" }, "Delete topic"));
  return h("details", { class: "card wide" }, h("summary", {}, "Grow or delete"), growing, deleting);
}

// The log end offset of each replica, moving; nothing where the nodes serve no metrics.
function replicasCard(name) {
  const box = h("div", { class: "card wide", hidden: true });
  async function load() {
    const answer = await get(`/api/topics/${encodeURIComponent(name)}/replicas`).catch(() => ({}));
    const found = Object.entries(answer.log_end_offsets ?? {});
    box.hidden = !found.length;
    if (!found.length) return;
    const nodes = [...new Set(found.flatMap(([, ends]) => Object.keys(ends)))].sort((a, b) => a - b);
    const rows = found.sort((a, b) => a[0] - b[0]).map(([partition, ends]) => {
      const row = state.partitions.get(`${name}\t${partition}`), top = Math.max(...Object.values(ends));
      return h("tr", {}, cellOf(partition, "partition"), nodes.map((node) => {
        if (ends[node] === undefined) return h("td", { class: "n quiet" }, "–");
        const behind = top - ends[node];
        return h("td", { class: "n", "data-label": `node ${node}` }, row && row[0] === Number(node) ? h("b", {}, number(ends[node])) : number(ends[node]), behind ? h("div", { class: "quiet small" }, `${number(behind)} behind`) : null);
      }));
    });
    box.replaceChildren(h("h2", {}, "Log end of each replica; the leader's in bold"), table(["#partition", ...nodes.map((node) => `#node ${node}`)], rows, { class: "wrap-narrow" }));
  }
  load();
  whileShown(box, load, 2000);
  return box;
}

export function topicPage(name) {
  const partitions = h("div", { class: "card wide" }), rest = h("div");
  async function load() {
    const topic = await get(`/api/topics/${encodeURIComponent(name)}`).catch((error) => { partitions.replaceChildren(h("p", { class: "warn small" }, error.message)); });
    if (!topic) return;
    const count = topic.partitions.length, starts = new Map(topic.partitions.map((one) => [one.partition, one.start_offset]));
    page.update = () => {
      const rows = [...Array(count).keys()].map((index) => {
        const row = state.partitions.get(`${name}\t${index}`);
        if (!row) return null;
        const [leader, epoch, replicas, isr, end] = row, kind = stateOf(row);
        return h("tr", {}, cellOf(String(index), "partition"), h("td", {}, h("span", { class: `state ${kind === "offline" ? "down" : kind === "in-sync" ? "" : "late"}` }, leader < 0 ? "none" : `node ${leader}`)),
          cellOf(String(epoch), "leader epoch"), h("td", { "data-label": "replicas" }, replicas.join(" ")), h("td", { "data-label": "in sync" }, isr.join(" ")), cellOf(number(starts.get(index)), "start"), cellOf(number(end), "high watermark"));
      });
      partitions.replaceChildren(h("h2", {}, "Partitions"), table(["#partition", "leader", "#leader epoch", "replicas", "in sync", "#log start", "#high watermark"], rows, { class: "wrap-narrow" }));
    };
    page.update();
    const ends = replicasCard(name);
    rest.replaceChildren(ends, recordsCard(name, count), ...(mayChange() && !topic.internal ? [produceCard(name, count)] : []), settingsCard(name, topic.configs, topic.why_no_configs, load),
      ...(mayChange() && !topic.internal ? [dangerCard(name, count)] : []));
  }
  const page = { element: h("div", {}, h("h1", {}, name), partitions, rest), update() {} };
  load();
  return page;
}
