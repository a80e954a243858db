// The rehearsal: faults of a local cluster by a click, and the probe.
import { attempt, h, number, post, state } from "./console.js";
import { mayChange, nodeCard, storyCard, svg } from "./parts.js";

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

function faultButtons(node) {
  const can = { kill: node.state !== "down", pause: node.state !== "down" && node.state !== "paused", continue: node.state === "paused", stop: node.state !== "down" && node.state !== "paused", start: node.state === "down" };
  const words = { kill: "Kill (SIGKILL)", pause: "Pause", continue: "Continue", stop: "Stop cleanly", start: "Start" };
  return h("div", { class: "buttons" }, Object.entries(words).map(([fault, text]) => h("button", {
    class: fault === "kill" ? "danger" : "", disabled: !can[fault], onclick: (event) => attempt(() => post(`/api/nodes/${node.node}/${fault}`), event.target),
  }, text)));
}

export function rehearsalPage() {
  const nodes = h("div", { class: "grid" }), chart = h("div"), figures = h("p"), story = storyCard();
  const toggle = h("button", { class: "go", onclick: () => attempt(() => post(`/api/probe/${state.probe.running ? "stop" : "start"}`), toggle) });
  let shown = "";
  const usable = () => state.about.is_local && mayChange();
  const intro = h("p", { class: "quiet" });
  return {
    element: h("div", {}, h("h1", {}, "Rehearse a failover"), intro, nodes,
      h("div", { class: "card wide" }, h("h2", {}, "Acknowledgements: the longest time between two of one partition"), h("div", { class: "row" }, toggle), figures, chart), story.element),
    update() {
      intro.textContent = usable() ? "Start the probe, kill the node that leads, and watch how long writes stop: the probe writes one record after the other, acks=all, to six partitions."
        : !state.heard ? "" : state.about.is_read_only ? "This console is read-only." : "Nodes can be killed here if raftwerk up started them on this machine.";
      const now = JSON.stringify(state.nodes);
      if (now !== shown) nodes.replaceChildren(...state.nodes.map((one) => nodeCard(one, usable() ? faultButtons(one) : null)));
      shown = now;
      this.onProbe();
      story.update();
    },
    onProbe() {
      toggle.textContent = state.probe.running ? "End the probe" : "Start the probe";
      toggle.hidden = !mayChange();
      figures.textContent = state.probe.points.length ? `${number(state.probe.acked)} records acknowledged, longest gap ${number(state.probe.longest_gap_ms)} ms` : "The probe has not run yet.";
      chart.replaceChildren(gapChart());
    },
  };
}
