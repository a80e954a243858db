// Groups: the list with their lag over time, and a group with its members and offsets.
import { attempt, get, h, number } from "./console.js";
import { cellOf, groupLink, lineChart, mayChange, previewed, sparkline, table, topicLink, whileShown } from "./parts.js";

const LOOK_EVERY_MS = 3000;

export function groupsPage() {
  const box = h("div", { class: "card" }, "…");
  async function load() {
    const found = await get("/api/groups").catch(() => null);
    if (!found) { if (box.textContent === "…") box.replaceChildren(h("p", { class: "quiet" }, "The cluster does not tell.")); return; }
    const rows = found.groups.map((one) => h("tr", {}, h("td", {}, groupLink(one.group)), h("td", { "data-label": "state" }, one.state), h("td", { "data-label": "type" }, one.kind), cellOf(String(one.coordinator), "coordinator"),
      cellOf(number(one.lag.at(-1)?.[1]), "lag"), h("td", {}, one.lag.length > 1 ? sparkline(one.lag.map(([, lag]) => lag), `lag of ${one.group}`) : "")));
    box.replaceChildren(rows.length ? table(["group", "state", "type", "#coordinator", "#lag", "over time"], rows, { class: "wrap-narrow" }) : h("p", { class: "quiet" }, "There are no groups."),
      ...found.missing.map((one) => h("p", { class: "quiet" }, `incomplete: ${one}`)));
  }
  load();
  const element = h("div", {}, h("h1", {}, "Groups"), box);
  whileShown(element, load, LOOK_EVERY_MS);
  return { element };
}

function resetCard(group, topics, again) {
  const topic = h("select", {}, topics.map((one) => h("option", {}, one))), to = h("input", { placeholder: "earliest, latest, or an offset", required: true, value: "earliest" });
  return h("details", { class: "card wide" }, h("summary", {}, "Reset offsets"), previewed({
    path: `/api/groups/${encodeURIComponent(group)}/reset`, button: "Set the offsets", done: again,
    fields: () => ({ topic: topic.value, to: to.value }),
    told: (found) => table(["#partition", "#from", "#to"], found.offsets.map((one) => h("tr", {}, cellOf(String(one.partition), "partition"), cellOf(number(one.from), "from"), cellOf(number(one.to), "to")))),
    inputs: [h("label", {}, "Topic", topic), h("label", {}, "To", to)],
  }));
}

export function groupPage(name) {
  const box = h("div"), reset = h("div");
  let topics = "";
  async function load(isFirst = false) {
    const asked = get(`/api/groups/${encodeURIComponent(name)}`);
    const group = await (isFirst ? attempt(() => asked) : asked.catch(() => null));
    if (!group) return;
    const members = group.members.map((one) => h("tr", {}, h("td", { class: "mono" }, one.member), h("td", { "data-label": "client" }, one.client), h("td", { "data-label": "host" }, one.host), h("td", { "data-label": "partitions" }, one.partitions.join(", ") || "none")));
    const lags = group.lags.map((one) => h("tr", {}, h("td", {}, topicLink(one.topic)), cellOf(String(one.partition), "partition"), cellOf(one.committed === null ? "no commit" : number(one.committed), "committed"), cellOf(number(one.end), "end"), cellOf(number(one.lag), "lag")));
    const total = group.lags.reduce((sum, one) => sum + (one.lag ?? 0), 0);
    const uncommitted = group.lags.filter((one) => one.committed === null).length;
    const behind = uncommitted ? `records behind, without ${number(uncommitted)} ${uncommitted === 1 ? "partition" : "partitions"} that ${uncommitted === 1 ? "has" : "have"} no commit` : "records behind";
    box.replaceChildren(
      h("div", { class: "tiles" }, h("div", { class: "card tile" }, h("b", {}, group.state), h("span", {}, "state")), h("div", { class: "card tile" }, h("b", {}, number(group.members.length)), h("span", {}, "members")),
        h("div", { class: `card tile ${total ? "warn" : "good"}` }, h("b", {}, number(total)), h("span", {}, behind))),
      h("div", { class: "wide" }, lineChart("Records behind", group.history, 1, "records", "while somebody looks")),
      h("div", { class: "card wide" }, h("h2", {}, "Lag"), lags.length ? table(["topic", "#partition", "#committed", "#end", "#lag"], lags, { class: "wrap-narrow" }) : h("p", { class: "quiet" }, "The group has committed no offsets, and no partition is assigned."),
        ...group.missing.map((one) => h("p", { class: "quiet" }, `incomplete: ${one}`))),
      h("div", { class: "card wide" }, h("h2", {}, "Members"), members.length ? table(["member", "client", "host", "partitions"], members, { class: "wrap-narrow" }) : h("p", { class: "quiet" }, "The group has no members.")));
    const now = [...new Set(group.lags.map((one) => one.topic))];
    if (mayChange() && now.length && topics !== now.join()) reset.replaceChildren(resetCard(name, now, load));
    topics = now.join();
  }
  load(true);
  const element = h("div", {}, h("h1", {}, name), box, reset);
  whileShown(element, load, LOOK_EVERY_MS);
  return { element };
}
