// Steps and plays through the history, and keeps the pictures, the lists and the keyboard together.
"use strict";

const ALWAYS_STEPPED = [
  "fault", "process", "link", "election", "controller", "broker", "leader", "ISR", "truncation", "request", "failure",
];
const ELECTED = step => step.kind === "election";
const JUMPS = [
  ["election", "e", ELECTED],
  ["leader", "l", step => step.kind === "leader"],
  ["ISR", "i", step => step.kind === "ISR"],
  ["truncation", "t", step => step.kind === "truncation"],
  ["high watermark", "h", step => step.kind === "high watermark"],
  ["fault", "f", step => step.kind === "fault"],
  ["failure", "x", step => step.kind === "failure"],
];
const PACES = [["step by step", 0], ["real time", 1], ["1/5", 5], ["1/20", 20], ["1/100", 100], ["1/1000", 1000]];
const GROUPS = ["quorum", "controller", "replication", "broker", "client"];
const LISTED = 60, MESSAGES_LISTED = 12;
const STEP_S = { least: 0.45, most: 1.4 }, FLIGHT_S = 0.5;
const STILL_US = 400;

class Replay {
  constructor(data) {
    this.history = decodeHistory(data);
    this.chosen = new Set(ALWAYS_STEPPED);
    this.groups = new Set(GROUPS);
    this.partitions = this.history.partitions.slice(0, 2);
    this.step = -1;
    this.at = this.history.from;
    this.pace = 0;
    this.timeLine = new TimeLine(this.history, by("lanes"), at => this.seek(at));
    this.timeLine.partitions = this.partitions;
    this.ring = new Ring(this.history, by("ring"));
    this.isStill = matchMedia("(prefers-reduced-motion: reduce)");
    this.introduce();
    this.offerChoices();
    this.listen();
    this.timeLine.redraw();
    this.open();
  }

  // Show the step or the time in the page's address, or else the first fault.
  open() {
    const [, what, value] = /^#(t|step)=([\d.]+)$/.exec(location.hash) ?? [];
    const { from, to, steps } = this.history;
    if (what === "t") this.seek(Math.min(Math.max(Number(value) * 1e6, from), to));
    else if (what === "step") this.goTo(Math.min(Math.floor(Number(value)), steps.length - 1));
    else this.goTo(nearestStep(this.history, -1, 1, step => step.kind === "fault") ?? -1);
  }

  introduce() {
    const { facts, from, to } = this.history;
    by("title").textContent = `${facts.scenario}, seed ${facts.seed}`;
    const part = from > 0 || to < facts.end_us ? `, shown from ${seconds(from, 3)} to ${seconds(to, 3)}` : "";
    const acked = facts.acked ? `, ${facts.acked.toLocaleString("en")} records acknowledged` : "";
    by("about").textContent = `${facts.what}. ${seconds(facts.end_us, 3)} of virtual time, `
      + `${facts.events.toLocaleString("en")} events${acked}${part}.`;
    const { failure } = facts;
    by("verdict").textContent = failure ? "failed" : "held";
    by("verdict").className = failure ? "bad" : "good";
    if (failure) {
      const go = make("button", { type: "button", class: "danger" }, "Go to the failure");
      go.addEventListener("click", () => this.goTo(this.history.steps.length - 1));
      by("failure").replaceChildren(
        make("h2", {}, `${failure.is_invariant ? "Broken" : "Failed"} after ${seconds(failure.at_us)}: ${failure.name}`),
        make("p", {}, failure.detail), make("p", { class: "quiet" }, make("code", {}, facts.command)), go);
      by("failure").hidden = false;
    }
    by("invariants").replaceChildren(...this.invariantGroups());
    by("left-out").replaceChildren(...this.history.left_out.map(text => make("p", { class: "warn" }, text)));
    by("keys").textContent = "← → one step; space plays; Home, End; + − show less or more time; 0 all of it; "
      + JUMPS.map(([name, key]) => `${key} ${name}`).join(", ") + ", with Shift the one before.";
  }

  invariantGroups() {
    const { facts } = this.history, broken = facts.failure?.is_invariant ? facts.failure.name : undefined;
    const found = Object.entries(facts.invariants).map(([about, names]) => make("details", { open: names.includes(broken) },
      make("summary", {}, `${names.length} about ${about}`),
      make("ul", {}, ...names.map(name => make("li", { class: name === broken ? "bad" : "" }, name)))));
    const isListed = Object.values(facts.invariants).some(names => names.includes(broken));
    if (broken && !isListed) found.unshift(make("p", { class: "bad" }, broken));
    const events = facts.events.toLocaleString("en");
    found.unshift(make("p", { class: "quiet" }, broken ? `Checked after each of ${events} events, until one was broken.`
      : `Checked after each of ${events} events. All of them held.`));
    return found;
  }

  offerChoices() {
    const counts = {};
    for (const step of this.history.steps) counts[step.kind] = (counts[step.kind] ?? 0) + 1;
    by("kinds").replaceChildren(...this.history.kinds.filter(kind => counts[kind]).map(kind =>
      this.chip(kind, this.chosen, () => this.listSteps(), counts[kind], `kind ${slug(kind)}`)));
    const used = new Set(this.history.messages.map(message => message.group));
    by("groups").replaceChildren(...GROUPS.filter(group => used.has(group)).map(group =>
      this.chip(group, this.groups, () => this.showMessages(), null, `swatch ${group}`)));
    const shown = new Set(this.partitions);
    by("partitions").replaceChildren(...this.history.partitions.map(name => this.chip(name, shown, () => {
      this.partitions = this.history.partitions.filter(each => shown.has(each));
      this.timeLine.partitions = this.partitions;
      this.timeLine.redraw();
      this.showLogs();
    })));
    by("pace").replaceChildren(...PACES.map(([name, value]) => make("option", { value: String(value) }, name)));
    by("jumps").replaceChildren(make("span", { class: "quiet" }, "Next"), ...JUMPS.map(([name, key, wanted]) => {
      const button = make("button", { type: "button", title: `The next (${key}), with Shift the one before` }, name);
      button.addEventListener("click", event => this.jump(wanted, event.shiftKey ? -1 : 1));
      button.wanted = wanted;
      return button;
    }));
  }

  chip(name, chosen, onChange, count = null, swatch = null) {
    const button = make("button", { type: "button", class: "chip", "aria-pressed": String(chosen.has(name)) });
    if (swatch) button.append(make("i", { class: swatch }));
    button.append(name);
    if (count !== null) button.append(make("small", {}, count.toLocaleString("en")));
    button.addEventListener("click", () => {
      if (chosen.has(name)) chosen.delete(name); else chosen.add(name);
      button.setAttribute("aria-pressed", String(chosen.has(name)));
      onChange();
    });
    return button;
  }

  listen() {
    by("back").addEventListener("click", () => this.stepBy(-1));
    by("next").addEventListener("click", () => this.stepBy(1));
    by("play").addEventListener("click", () => this.togglePlay());
    by("pace").addEventListener("change", event => { this.pace = Number(event.target.value); });
    by("zoom-in").addEventListener("click", () => this.zoom(0.4));
    by("zoom-out").addEventListener("click", () => this.zoom(2.5));
    by("zoom-all").addEventListener("click", () => this.zoom(Infinity));
    by("theme").addEventListener("click", () => {
      const root = document.documentElement;
      const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = isDark ? "light" : "dark";
    });
    by("steps").addEventListener("click", event => {
      const row = event.target.closest("li");
      if (row) this.goTo(Number(row.dataset.step));
    });
    new ResizeObserver(() => this.onResize()).observe(document.querySelector("main"));
    document.addEventListener("keydown", event => this.onKey(event));
  }

  onResize() {
    this.timeLine.redraw();
    if (this.ring.shapeFor(by("ring").clientWidth) && this.state) {
      this.ring.showState(this.state);
      this.showMessages();
    }
    this.showLogs();
  }

  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("select")) return;
    if (event.key === " " && event.target.closest("button:focus-visible, summary:focus-visible")) return;
    const jump = JUMPS.find(([, key]) => key === event.key.toLowerCase());
    const actions = {
      ArrowRight: () => this.stepBy(1), ArrowLeft: () => this.stepBy(-1), " ": () => this.togglePlay(),
      Home: () => this.goTo(-1), End: () => this.goTo(this.history.steps.length - 1),
      "+": () => this.zoom(0.4), "-": () => this.zoom(2.5), 0: () => this.zoom(Infinity),
    };
    const action = jump ? () => this.jump(jump[2], event.shiftKey ? -1 : 1) : actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  zoom(factor) {
    if (factor === Infinity) this.timeLine.show(this.history.from, this.history.to);
    else this.timeLine.zoom(factor, this.at);
    this.tellWindow();
  }

  // -- moving

  isChosen(step) { return this.chosen.has(step.kind); }

  stepBy(direction) {
    this.pause();
    const found = nearestStep(this.history, direction < 0 ? this.current() : this.step, direction, step => this.isChosen(step));
    if (found !== null) this.goTo(found); else if (direction < 0) this.goTo(-1);
  }

  jump(wanted, direction) {
    this.pause();
    const found = nearestStep(this.history, this.step, direction, wanted);
    if (found !== null) this.goTo(found);
  }

  seek(at) {
    this.pause();
    this.showAt(at, stepAt(this.history, at));
  }

  goTo(number) {
    this.pause();
    this.showAt(number < 0 ? this.history.from : this.history.steps[number].at, number, true);
  }

  // Show a time after the step of this number, which may have others of the same time behind it.
  showAt(at, number, wasAsked = false) {
    this.wasAsked = wasAsked;
    const isNew = number !== this.step;
    this.at = at;
    this.step = number;
    if (at < this.timeLine.from || at > this.timeLine.to) {
      const half = (this.timeLine.to - this.timeLine.from) / 2;
      this.timeLine.show(at - half, at + half);
    }
    this.timeLine.move(at);
    if (isNew || !this.state) {
      this.state = stateAt(this.history, number);
      this.ring.showState(this.state);
      this.showLogs();
      this.listSteps();
      this.tellNow();
    }
    this.showMessages();
    this.tellWindow();
    const step = this.history.steps[number];
    const address = step && step.at === at ? `#step=${number}` : `#t=${(at / 1e6).toFixed(6)}`;
    if (!this.playing) history.replaceState(null, "", address);
  }

  togglePlay() { if (this.playing) this.pause(); else this.play(); }

  pause() {
    if (!this.playing) return;
    cancelAnimationFrame(this.playing);
    this.playing = null;
    by("play").textContent = "Play";
    by("now").setAttribute("aria-live", "polite");
    this.showMessages();
  }

  play() {
    if (this.nextTarget() === null && this.at >= this.history.to) this.showAt(this.history.from, -1);
    by("play").textContent = "Pause";
    by("now").setAttribute("aria-live", "off");
    let before = performance.now();
    this.leg = null;
    const frame = now => {
      const spentS = Math.min(0.1, (now - before) / 1000);
      before = now;
      this.playing = requestAnimationFrame(frame);
      if (!(this.pace ? this.advance(spentS * 1e6 / this.pace) : this.walk(spentS))) this.pause();
    };
    this.playing = requestAnimationFrame(frame);
  }

  nextTarget() { return nearestStep(this.history, this.step, 1, step => this.isChosen(step)); }

  // Play at a fraction of real time; false at the end.
  advance(us) {
    const at = Math.min(this.history.to, this.at + us);
    this.showAt(at, Math.max(this.step, stepAt(this.history, at)));
    return at < this.history.to;
  }

  // Play from one chosen step to the next, each leg in a time that a person can follow; false at the end.
  walk(spentS) {
    if (!this.leg) {
      const target = this.nextTarget();
      if (target === null) return false;
      const to = this.history.steps[target].at, wide = to - this.at;
      const lasts = Math.min(STEP_S.most, STEP_S.least + Math.log10(1 + wide / 1000) * 0.25);
      this.leg = { target, from: this.at, to, lasts: this.isStill.matches ? STEP_S.most : lasts, spent: 0 };
    }
    const { leg } = this;
    leg.spent += spentS;
    const part = Math.min(1, leg.spent / leg.lasts);
    if (part === 1) {
      this.leg = null;
      this.showAt(leg.to, leg.target);
    } else if (!this.isStill.matches) {
      const at = leg.from + (leg.to - leg.from) * part;
      this.showAt(at, Math.max(this.step, Math.min(leg.target - 1, stepAt(this.history, at))));
    }
    return true;
  }

  // -- showing

  // How long a message is shown at least, in virtual time, so that it can be seen at the present pace.
  shownUs() {
    if (!this.playing) return STILL_US;
    if (this.pace) return FLIGHT_S * 1e6 / this.pace;
    return this.leg ? (this.leg.to - this.leg.from) / this.leg.lasts * FLIGHT_S : STILL_US;
  }

  showMessages() {
    const flights = messagesAt(this.history, this.at, this.shownUs()).filter(({ message }) => this.groups.has(message.group));
    this.ring.showMessages(flights);
    const rows = flights.slice(0, MESSAGES_LISTED).map(({ message, isLost }) => {
      const kind = message.isResponse ? " response" : "";
      const took = isLost ? "never arrives" : message.arrived === null ? "not there when the run ended"
        : `takes ${((message.arrived - message.sent) / 1000).toFixed(3)} ms`;
      return make("li", {}, make("i", { class: `swatch ${message.group}` }),
        make("b", {}, `${message.source} → ${message.target}`), ` ${message.api}${kind} `,
        make("span", { class: isLost ? "bad" : "quiet" }, `sent ${seconds(message.sent)}, ${took}`));
    });
    if (flights.length > rows.length) rows.push(make("li", { class: "quiet" }, `and ${flights.length - rows.length} more`));
    by("messages").replaceChildren(...(rows.length ? rows : [make("li", { class: "quiet" }, "none")]));
  }

  showLogs() {
    if (!this.state) return;
    const width = by("bars").clientWidth;
    const logs = [quorumLog(this.history, this.state), ...this.partitions.map(name => partitionLog(this.history, this.state, name))];
    by("bars").replaceChildren(...logs.map(log => drawnLog(this.history, this.state, log, width)));
  }

  // The step that is told: the last one of the chosen kinds, or the very step that was gone to.
  current() {
    if (this.wasAsked) return this.step;
    return nearestStep(this.history, this.step + 1, -1, step => this.isChosen(step)) ?? -1;
  }

  listSteps() {
    const { steps } = this.history, before = [], after = [], shown = this.current();
    for (let i = shown; i >= 0 && before.length < LISTED / 3; i--) {
      if (i === shown || this.isChosen(steps[i])) before.unshift(steps[i]);
    }
    for (let i = this.step + 1; i < steps.length && after.length < LISTED - before.length; i++) {
      if (this.isChosen(steps[i])) after.push(steps[i]);
    }
    by("steps").replaceChildren(...[...before, ...after].map(step => {
      const row = make("li", { "data-step": String(step.number) },
        make("time", {}, (step.at / 1e6).toFixed(6)), make("i", { class: `kind ${slug(step.kind)}`, title: step.kind }),
        make("b", {}, step.where), make("span", {}, step.text));
      if (step.number === shown) row.setAttribute("aria-current", "step");
      return row;
    }));
    const current = by("steps").querySelector("[aria-current]");
    if (current) by("steps").scrollTop = Math.max(0, current.offsetTop - by("steps").clientHeight / 3);
    for (const button of by("jumps").querySelectorAll("button")) {
      button.disabled = nearestStep(this.history, -1, 1, button.wanted) === null;
    }
  }

  tellNow() {
    const step = this.history.steps[this.current()], [time, where, text] = by("now").children;
    time.textContent = step ? seconds(step.at) : seconds(this.history.from);
    where.textContent = step ? step.where : "";
    text.textContent = step ? step.text : "before the first step";
    by("now").className = step ? `kind-${slug(step.kind)}` : "";
  }

  tellWindow() {
    const { from, to } = this.timeLine;
    const isAll = from <= this.history.from && to >= this.history.to;
    by("window").textContent = isAll ? "the whole run" : `${seconds(from, 3)} to ${seconds(to, 3)}`;
  }
}

const by = id => document.getElementById(id);
const slug = text => text.replaceAll(" ", "-").toLowerCase();

window.replay = new Replay(JSON.parse(by("history").textContent));
