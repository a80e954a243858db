// Transactions: the transactional ids, one of them, and transactions that hang.
import { attempt, get, h, number, post } from "./console.js";
import { ago, cellOf, mayChange, pick, previewOf, previewed, section, table, topicLink } from "./parts.js";

const idLink = (name) => h("a", { href: `#/transactions/${encodeURIComponent(name)}` }, name);
const stateCell = (one) => h("td", { "data-label": "state" }, h("span", { class: `state ${one === "Ongoing" || one.startsWith("Prepare") ? "late" : ""}` }, one));

function openTable(rows, buttonOf) {
  return table(["partition", "#from offset", "#producer", "#epoch", "last record", ""], rows.map((one) => h("tr", {},
    h("td", {}, topicLink(one.topic), `-${one.partition}`), cellOf(number(one.start_offset), "from offset"), cellOf(String(one.producer_id), "producer"),
    cellOf(String(one.producer_epoch), "epoch"), h("td", { "data-label": "last record" }, ago(one.last_timestamp_ms)), h("td", {}, buttonOf?.(one) ?? ""))), { class: "wrap-narrow" });
}

function hangingCard() {
  const box = h("div"), place = h("div"), older = pick([["900", "15 minutes"], ["60", "one minute"], ["3600", "one hour"]], { "aria-label": "Older than" });
  async function look(event) {
    event?.preventDefault();
    const found = await attempt(() => get(`/api/hanging-transactions?older_than_s=${older.value}`), form);
    if (!found) return;
    const abort = (one) => mayChange() ? h("button", { class: "danger", onclick: previewOf(place, { path: "/api/hanging-transactions/abort",
      fields: { topic: one.topic, partition: one.partition, start_offset: one.start_offset }, button: "Abort it", done: look,
      told: (answer) => h("p", {}, `The transaction of producer ${answer.transaction.producer_id} in ${one.topic}-${one.partition} is aborted; its records are never read with read_committed.`) }) }, "Abort…") : null;
    const incomplete = found.missing.map((one) => h("p", { class: "quiet" }, `incomplete: ${one}`));
    box.replaceChildren(found.transactions.length ? openTable(found.transactions, abort) : h("p", { class: "quiet" }, incomplete.length ? "" : "No transaction hangs."), ...incomplete);
  }
  const form = h("form", { class: "row", onsubmit: look }, h("label", {}, "Whose last record is older than", older), h("button", { class: "go" }, "Look for transactions that hang"));
  return h("div", { class: "card wide" }, h("h2", {}, "Transactions that hang"),
    h("p", { class: "quiet" }, "A partition has them open and no coordinator knows them, so readers with read_committed wait at their first record, and nobody will end them."), form, box, place);
}

export function transactionsPage() {
  const filter = h("input", { placeholder: "Filter by id ( / )", "aria-label": "Filter by id", "data-filter": "1", oninput: () => part.redraw() });
  const part = section("Transactional ids", "/api/transactions", (found) => {
    const rows = found.transactions.filter((one) => one.transactional_id.includes(filter.value)).map((one) => h("tr", {}, h("td", {}, idLink(one.transactional_id)),
      stateCell(one.state), cellOf(String(one.producer_id), "producer"), cellOf(String(one.coordinator), "coordinator")));
    return rows.length ? table(["transactional id", "state", "#producer", "#coordinator"], rows, { class: "wrap-narrow" }) : null;
  }, "There are no such transactional ids.");
  return { element: h("div", {}, h("h1", {}, "Transactions"), h("div", { class: "row" }, filter, h("button", { onclick: part.load }, "Look again")), part.element, hangingCard()) };
}

export function transactionPage(name) {
  const path = `/api/transactions/${encodeURIComponent(name)}`;
  const part = section("As its coordinator knows it", path, (one) => h("div", {},
    table(["state", "#coordinator", "#producer", "#epoch", "#time-out", "began"], [h("tr", {}, stateCell(one.state), cellOf(String(one.coordinator), "coordinator"),
      cellOf(String(one.producer_id), "producer"), cellOf(String(one.producer_epoch), "epoch"), cellOf(`${number(one.timeout_ms)} ms`, "time-out"),
      h("td", { "data-label": "began" }, one.start_ms === null ? "–" : ago(one.start_ms)))], { class: "wrap-narrow" }),
    h("p", {}, one.partitions.length ? "It has written to " : h("span", { class: "quiet" }, "It has written to no partition."),
      one.partitions.map((row, at) => [at ? ", " : "", topicLink(row.topic), `-${row.partition}`]).flat())));
  const told = ({ before, executed }) => h("p", {}, before.state === "Ongoing"
    ? `The transaction of ${name}, begun ${ago(before.start_ms)}, is aborted in ${before.partitions.length} partitions, and producer ${before.producer_id} is fenced${executed ? "." : ": its next request would be refused."}`
    : `${name} has no open transaction (${before.state}); producer ${before.producer_id} is fenced.`);
  const ending = mayChange() ? h("div", { class: "card wide" }, h("h2", {}, "End it"), h("p", { class: "quiet" }, "For an application that is stuck. The coordinator ends a transaction by itself when its time-out has passed."),
    previewed({ path: `${path}/terminate`, fields: () => ({}), told, button: "Abort it and fence the producer", inputs: [], done: part.load })) : null;
  return { element: h("div", {}, h("h1", {}, name), h("div", { class: "row" }, h("button", { onclick: part.load }, "Look again")), part.element, ending) };
}
