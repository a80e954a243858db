// The overview: numbers, nodes, a cell for each partition, rates, the quorum, and what happened.
import { h, number, partitionOf, state, stateOf, topicOf } from "./console.js";
import { lineChart, nodeCard, storyCard, table, topicLink } from "./parts.js";

function quorumCard() {
  const quorum = state.quorum;
  if (!quorum && !state.heard) return h("div", { class: "card" }, h("h2", {}, "Metadata quorum"), h("p", { class: "quiet" }, "asking the cluster …"));
  if (!quorum && state.whyNoQuorum) return h("div", { class: "card" }, h("h2", {}, "Metadata quorum"), h("p", { class: "quiet" }, state.whyNoQuorum));
  if (!quorum) return h("div", { class: "card" }, h("h2", {}, "Metadata quorum"), h("p", { class: "state down" }, "no leader is known"));
  const rows = quorum.members.map((one) => h("tr", {},
    h("td", {}, h("span", { class: `state ${one.late ? "late" : ""}` }, `${one.node}`), one.node === quorum.leader ? h("span", { class: "badge" }, "leader") : null),
    h("td", {}, one.voter ? "voter" : "observer"), h("td", { class: "n" }, one.late ? "does not fetch" : number(one.lag))));
  return h("div", { class: "card" }, h("h2", {}, `Metadata quorum: epoch ${quorum.epoch}, high watermark ${number(quorum.high_watermark)}`),
    table(["node", "role", "#records behind"], rows));
}

function cellTitle(key, [leader, epoch, replicas, isr, end]) {
  return `${topicOf(key)}-${partitionOf(key)}: leader ${leader < 0 ? "none" : leader}, epoch ${epoch}, replicas ${replicas.join(" ")}, ` +
    `in sync ${isr.join(" ")}, high watermark ${number(end)}`;
}

// The partitions as cells, each made once and changed where it changed: thousands of them are no burden.
function partitionGrid() {
  const cells = new Map(), rows = new Map();
  const box = h("div", { class: "parts" });
  const legend = h("div", { class: "legend" },
    h("span", {}, h("span", { class: "cell" }, "2"), "leader 2, all replicas in sync"),
    h("span", {}, h("span", { class: "cell under-replicated" }, "2"), "replicas out of sync"),
    h("span", {}, h("span", { class: "cell offline" }, "✕"), "no leader"),
    h("span", {}, h("span", { class: "cell moving" }, "2"), "written to"));
  function rowOf(topic) {
    let row = rows.get(topic);
    if (!row) {
      row = { link: topicLink(topic), cells: h("div", { class: "cells" }), count: 0 };
      rows.set(topic, row);
      const next = [...rows.keys()].sort()[[...rows.keys()].sort().indexOf(topic) + 1];
      box.insertBefore(row.link, next ? rows.get(next).link : null);
      row.link.after(row.cells);
    }
    return row;
  }
  function place(key, row) {
    const before = [...row.cells.children].find((one) => Number(one.dataset.partition) > partitionOf(key));
    const cell = h("span", { class: "cell", "data-partition": String(partitionOf(key)) });
    row.cells.insertBefore(cell, before ?? null);
    cells.set(key, { cell, shown: null, moving: false });
    row.count += 1;
  }
  function update() {
    for (const [key, partition] of state.partitions) {
      if (!cells.has(key)) place(key, rowOf(topicOf(key)));
      const one = cells.get(key), moving = state.moved.has(key);
      if (one.shown === partition && one.moving === moving) continue;
      Object.assign(one, { shown: partition, moving });
      one.cell.className = `cell ${stateOf(partition)}${moving ? " moving" : ""}`;
      one.cell.textContent = partition[0] < 0 ? "✕" : String(partition[0]);
      one.cell.title = cellTitle(key, partition);
    }
    for (const [key, { cell }] of cells) {
      if (state.partitions.has(key)) continue;
      cell.remove();
      cells.delete(key);
      const row = rows.get(topicOf(key));
      row.count -= 1;
      if (!row.count) { row.link.remove(); row.cells.remove(); rows.delete(topicOf(key)); }
    }
  }
  return { element: h("div", { class: "card wide" }, h("h2", {}, "Partitions, by the node that leads them"), box, legend), update };
}

function tiles() {
  const sum = state.summary ?? {};
  const tile = (value, text, kind = "") => h("div", { class: `card tile ${kind}` }, h("b", {}, value), h("span", {}, text));
  return [
    tile(`${sum.nodes_up ?? "–"} / ${sum.nodes ?? "–"}`, "nodes up", sum.nodes_up === sum.nodes ? "good" : "bad"),
    tile(number(sum.partitions), "partitions"),
    tile(number(sum.under_replicated), "under-replicated", sum.under_replicated ? "warn" : "good"),
    tile(number(sum.offline), "without a leader", sum.offline ? "bad" : "good"),
    tile(state.recordsPerS === null ? "–" : number(Math.round(state.recordsPerS)), "records a second"),
  ];
}

export function overviewPage() {
  const top = h("div", { class: "tiles" }), charts = h("div", { class: "grid" }), nodes = h("div", { class: "grid" });
  const lower = h("div", { class: "grid" }), quorum = h("div"), grid = partitionGrid(), story = storyCard();
  lower.append(quorum, story.element);
  return {
    element: h("div", {}, top, nodes, grid.element, charts, lower),
    update() {
      top.replaceChildren(...tiles());
      nodes.replaceChildren(...state.nodes.map((one) => nodeCard(one)));
      charts.replaceChildren(lineChart("Records committed", state.history, 1, "a second"), lineChart("Partitions not in sync", state.history, 2, "partitions"));
      quorum.replaceChildren(quorumCard());
      grid.update();
      story.update();
    },
  };
}
