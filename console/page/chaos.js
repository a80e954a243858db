// A chaos run from its choice of faults to its verdict; one at a time, of all who look at this console.
import { attempt, get, h, number, post, state } from "./console.js";
import { pick, table } from "./parts.js";

const PRESET = ["kill", "pause"];

// The faults as boxes to tick; those that the machine cannot inject, or this cluster cannot take, say why.
function faultChoice(faults, own) {
  const chosen = new Set(PRESET);
  const box = h("fieldset", { class: "checks" });
  function redraw() {
    const rows = faults.map((one) => {
      const why = one.left_out.length ? one.left_out.join("; ") : one.needs_own_cluster && !own.checked ? "in a cluster of the run's own only" : "";
      return h("label", { title: one.what }, h("input", { type: "checkbox", name: one.fault, checked: !why && chosen.has(one.fault), disabled: why !== "",
        onchange: (event) => { if (event.target.checked) chosen.add(one.fault); else chosen.delete(one.fault); } }),
      h("span", {}, one.fault, " ", h("span", { class: "quiet small" }, why || one.what)));
    });
    box.replaceChildren(h("legend", {}, "Faults"), ...rows);
  }
  own.addEventListener("change", redraw);
  redraw();
  return { element: box, chosen: () => [...box.querySelectorAll("input:checked")].map((one) => one.name) };
}

function startForm(faults) {
  const own = h("input", { type: "checkbox", name: "own" }), choice = faultChoice(faults, own);
  const minutes = pick([["1", "1 minute"], ["3", "3 minutes"], ["10", "10 minutes"], ["30", "30 minutes"]]);
  const rate = h("input", { type: "number", min: "1", max: "5000", value: "200", required: true });
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    attempt(() => post("/api/chaos/start", { faults: choice.chosen(), minutes: Number(minutes.value), rate: Number(rate.value), own_cluster: own.checked }), form);
  } }, choice.element, h("div", { class: "row" }, h("label", {}, "For", minutes), h("label", {}, "Records a second of each of two producers", rate),
    h("label", { class: "check" }, own, "in a cluster of its own"), h("button", { class: "go" }, "Start the chaos run")));
  return form;
}

const counts = (found) => Object.entries(found).map(([name, count]) => `${name} ${number(count)}`).join(", ");
const list = (title, lines) => lines.length ? h("div", {}, h("b", {}, title), h("ul", {}, lines.map((one) => h("li", {}, one)))) : null;

function verdictOf({ verdict, began_ms: began }) {
  const none = verdict.anomalies.length === 0;
  return h("div", {}, h("p", { class: `verdict ${verdict.verdict}` }, verdict.verdict),
    h("p", {}, none ? "No promise to clients was broken, by what they sent and read." : "These promises to clients were broken:"),
    none ? null : table(["what", "#how often", "meaning", "evidence"], verdict.anomalies.map((one) => h("tr", {}, h("td", {}, one.kind), h("td", { class: "n", "data-label": "how often" }, number(one.count)),
      h("td", {}, one.meaning), h("td", {}, one.evidence.map((text) => h("div", { class: "small" }, text))))), { class: "wrap-narrow" }),
    h("p", { class: "quiet" }, `Faults: ${counts(verdict.inflicted) || "none"}. Operations: ${counts(verdict.totals)}.${Object.keys(verdict.transactions).length ? ` In transactions: ${counts(verdict.transactions)}.` : ""}`),
    list("Errors", verdict.errors), list("Never injected", verdict.not_injected), list("Left out", Object.entries(verdict.left_out).map(([name, why]) => `${name}: ${why}`)), list("Notes", verdict.notes),
    h("p", {}, h("a", { href: "/chaos-report", target: "_blank", rel: "noreferrer" }, `Report of the run begun at ${new Date(began).toLocaleTimeString("en-GB")}`)));
}

export function chaosCard() {
  const choice = h("div"), progress = h("div"), element = h("div", { class: "card wide" }, h("h2", {}, "Chaos run"),
    h("p", { class: "quiet" }, "Real clients write and read while faults come by chance; at the end everything is healed, and what the clients saw is judged: the same as raftwerk chaos run."), choice, progress);
  let shown = "", asked = false;
  async function load() {
    asked = true;
    const found = await attempt(() => get("/api/chaos/faults"));
    if (found) choice.replaceChildren(startForm(found.faults));
    else asked = false;
  }
  function runningPart(run) {
    const stop = h("button", { class: "danger", onclick: () => attempt(() => post("/api/chaos/stop"), stop) }, run.stopping ? "End at once, without a verdict" : "Stop, heal and judge");
    const lines = h("pre", { "aria-label": "Progress of the chaos run" }, run.lines.slice(-60).join("\n"));
    requestAnimationFrame(() => { lines.scrollTop = lines.scrollHeight; });
    return [h("p", {}, `${run.faults.join(", ")}, ${run.minutes} min, since ${new Date(run.began_ms).toLocaleTimeString("en-GB")}${run.stopping ? ": healing and judging" : ""}`), lines, h("div", { class: "buttons" }, stop)];
  }
  return {
    element,
    update() {
      if (element.hidden) return;
      const run = state.chaos;
      if (!asked && !run.running) load();
      choice.hidden = run.running;
      const now = JSON.stringify(run);
      if (now === shown) return;
      shown = now;
      progress.replaceChildren(...(run.running ? runningPart(run) : run.verdict ? [verdictOf(run)] : run.error
        ? [h("p", { class: "warn small" }, `There is no verdict: ${run.error}`), h("details", {}, h("summary", {}, "What it said"), h("pre", {}, run.lines.join("\n")))] : []));
    },
  };
}
