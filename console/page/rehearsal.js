// The rehearsal: faults of a local cluster by a click, the probe, and chaos runs.
import { chaosCard } from "./chaos.js";
import { attempt, h, number, post, state } from "./console.js";
import { mayChange, nodeCard, pick, storyCard, svg } from "./parts.js";

const GAP_MS = 1000, SLOW_MS = 200;

function gapChart() {
  const points = state.probe.points.slice(-600);
  const top = Math.max(...points.map((one) => one[1]), 250);
  const picture = svg("svg", { class: "chart tall", viewBox: "0 0 600 150", preserveAspectRatio: "none", role: "img",
    "aria-label": `longest time between acknowledgements; at most ${number(state.probe.longest_gap_ms)} milliseconds` });
  points.forEach(([, gap], at) => {
    const height = Math.max(146 * gap / top, 1);
    const kind = gap >= GAP_MS ? "bar gap" : gap >= SLOW_MS ? "bar slow" : "bar";
    picture.append(svg("rect", { class: kind, x: 600 - points.length + at, y: 150 - height, width: 1, height }));
  });
  return h("div", {}, picture, h("div", { class: "axis" }, h("span", {}, "one minute ago"), h("span", {}, `top: ${number(top)} ms`), h("span", {}, "now")));
}

const LASTS = [["0", "until healed"], ["5", "5 seconds"], ["15", "15 seconds"], ["60", "a minute"]];
const DELAYS = [["50", "50 ms"], ["200", "200 ms"], ["1000", "1 second"]];

// The buttons of a node; `lasts` and `delay` are the fields that say for how long, and how slow.
function faultButtons(node, lasts, delay) {
  const up = node.state !== "down", runs = up && node.state !== "paused", injects = !state.about.why_not_injected;
  const faults = [
    ["kill", "Kill (SIGKILL)", up], ["pause", "Pause", runs], ["continue", "Continue", node.state === "paused"], ["stop", "Stop cleanly", runs], ["start", "Start", !up],
    ["cut", "Cut off", injects && runs], ["slow", "Slow down", injects && runs], ["fill", "Fill the disk", injects && runs], ["heal", "Heal", node.faults?.length > 0],
  ];
  const fields = () => ({ duration_s: Number(lasts.value) || -1, delay_ms: Number(delay.value) });
  return h("div", { class: "buttons" }, faults.map(([fault, text, can]) => h("button", {
    class: fault === "kill" ? "danger" : "", disabled: !can, onclick: (event) => attempt(() => post(`/api/nodes/${node.node}/${fault}`, fields()), event.target),
  }, text)));
}

export function rehearsalPage() {
  const nodes = h("div", { class: "grid" }), chart = h("div"), figures = h("p"), story = storyCard(), chaos = chaosCard();
  const lasts = pick(LASTS), delay = pick(DELAYS), why = h("p", { class: "warn small" });
  delay.value = "200";
  const toggle = h("button", { class: "go", onclick: () => attempt(() => post(`/api/probe/${state.probe.running ? "stop" : "start"}`), toggle) });
  const options = h("div", { class: "row" }, h("label", {}, "Faults last", lasts), h("label", {}, "A slow node is late by", delay));
  let shown = "";
  const usable = () => state.about.is_local && mayChange();
  const intro = h("p", { class: "quiet" });
  return {
    element: h("div", {}, h("h1", {}, "Rehearse a failover"), intro, options, why, nodes,
      h("div", { class: "card wide" }, h("h2", {}, "Acknowledgements: the longest time between two of one partition"), h("div", { class: "row" }, toggle), figures, chart),
      chaos.element, story.element),
    update() {
      intro.textContent = usable() ? "Start the probe, kill the node that leads, and watch how long writes stop: the probe writes one record after the other, acks=all, to six partitions."
        : !state.heard ? "" : state.about.is_read_only ? "This console is read-only." : "Nodes can be killed here if raftwerk up started them on this machine.";
      options.hidden = chaos.element.hidden = !usable();
      why.textContent = (usable() && state.about.why_not_injected) || "";
      const now = JSON.stringify(state.nodes);
      if (now !== shown) nodes.replaceChildren(...state.nodes.map((one) => nodeCard(one, usable() ? faultButtons(one, lasts, delay) : null)));
      shown = now;
      this.onProbe();
      story.update();
      chaos.update();
    },
    onChaos: chaos.update,
    onProbe() {
      toggle.textContent = state.probe.running ? "End the probe" : "Start the probe";
      toggle.hidden = !mayChange();
      figures.textContent = state.probe.points.length ? `${number(state.probe.acked)} records acknowledged, longest gap ${number(state.probe.longest_gap_ms)} ms` : "The probe has not run yet.";
      chart.replaceChildren(gapChart());
    },
  };
}
