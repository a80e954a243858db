// The pictures: the time line, the ring of nodes with messages between them, and the logs.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in element && typeof value !== "string") element[key] = value; else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const seconds = (us, digits = 6) => `${(us / 1e6).toFixed(digits)} s`;
const nodeId = host => Number(host.slice(1));
const listed = ids => `[${(ids ?? []).join(", ")}]`;
const colorOf = (history, host) => history.hosts.includes(host) ? `node-${history.hosts.indexOf(host) % 8}` : "node-client";
const hostOf = (history, id) => history.hosts.find(host => nodeId(host) === id);

// -- the time line

const LANE = { left: 92, right: 10, fault: 15, acks: 30, node: 15, gap: 5, axis: 18 };
const RAIL = { up: "up", starting: "starting", stopping: "starting", paused: "paused", down: "down" };

function packedFaults(faults) {
  const rowEnds = [];
  return faults.map(([from, to, what, hosts]) => {
    let row = rowEnds.findIndex(end => end <= from);
    if (row < 0) row = rowEnds.length;
    rowEnds[row] = Math.max(to, from + 1);
    return { from, to, what, hosts, row };
  });
}

class TimeLine {
  constructor(history, holder, onSeek) {
    Object.assign(this, { history, holder, onSeek, from: history.from, to: history.to });
    this.faults = packedFaults(history.faults);
    this.rows = Math.min(4, Math.max(1, ...this.faults.map(fault => fault.row + 1)));
    this.watchPointer();
  }

  x(at) {
    return LANE.left + (this.width - LANE.left - LANE.right) * (at - this.from) / Math.max(1, this.to - this.from);
  }

  timeAt(x) {
    const part = (x - LANE.left) / (this.width - LANE.left - LANE.right);
    return this.from + Math.min(1, Math.max(0, part)) * (this.to - this.from);
  }

  show(from, to) {
    const wide = Math.min(this.history.to - this.history.from, Math.max(1000, to - from));
    this.from = Math.min(Math.max(from, this.history.from), this.history.to - wide);
    this.to = this.from + wide;
    this.redraw();
  }

  zoom(factor, around) {
    const wide = (this.to - this.from) * factor;
    const part = Math.min(0.8, Math.max(0.2, (around - this.from) / Math.max(1, this.to - this.from)));
    this.show(around - wide * part, around + wide * (1 - part));
  }

  watchPointer() {
    const seek = event => {
      const box = this.holder.getBoundingClientRect();
      this.onSeek(this.timeAt(event.clientX - box.left));
    };
    this.holder.addEventListener("pointerdown", event => {
      this.holder.setPointerCapture(event.pointerId);
      seek(event);
    });
    this.holder.addEventListener("pointermove", event => { if (event.buttons & 1) seek(event); });
  }

  redraw() {
    const { history, holder } = this;
    this.width = holder.clientWidth;
    const svg = draw("svg", { role: "img", "aria-label": "Faults, acknowledged records, nodes and leaders over time" });
    let y = 2;
    const label = (text, top, height) =>
      svg.append(draw("text", { x: LANE.left - 8, y: top + height / 2 + 4, "text-anchor": "end", class: "label" }, text));
    label("faults", y, LANE.fault * this.rows);
    svg.append(...this.faultBars(y));
    y += LANE.fault * this.rows + LANE.gap;
    if (history.acks.length) {
      label("acks", y, LANE.acks);
      svg.append(this.ackBars(y));
      y += LANE.acks + LANE.gap;
    }
    const programs = history.clients.filter(client => history.changesOf.has(`${client}.process`));
    for (const host of [...history.hosts, ...programs]) {
      label(shortened(host, 10), y, LANE.node);
      svg.append(...this.nodeLane(host, y));
      y += LANE.node + 3;
    }
    y += LANE.gap;
    for (const partition of this.partitions ?? []) {
      label(shortened(partition, 10), y, LANE.node);
      svg.append(...this.leaderLane(partition, y));
      y += LANE.node + 5;
    }
    svg.append(...this.axis(y + 2));
    if (history.facts.failure) svg.append(this.failureLine(y));
    this.playhead = draw("g", { class: "playhead" }, draw("line", { y1: 0, y2: y }), draw("path", { d: "M-5 0h10l-5 7z" }));
    svg.append(this.playhead);
    svg.setAttribute("width", this.width);
    svg.setAttribute("height", y + LANE.axis);
    holder.replaceChildren(svg);
    this.move(this.at ?? history.from);
  }

  move(at) {
    this.at = at;
    if (!this.playhead) return;
    this.playhead.setAttribute("transform", `translate(${this.x(at).toFixed(1)} 0)`);
    this.playhead.setAttribute("visibility", at < this.from || at > this.to ? "hidden" : "visible");
  }

  box(from, to, y, height, name, title) {
    if (to < this.from || from > this.to) return null;
    const left = this.x(Math.max(from, this.from)), right = this.x(Math.min(to, this.to));
    const width = Math.max(1.5, right - left).toFixed(1);
    return draw("rect", { x: left.toFixed(1), y, width, height, class: name }, draw("title", {}, title));
  }

  faultBars(y) {
    const found = [];
    for (const fault of this.faults) {
      const top = y + Math.min(fault.row, this.rows - 1) * LANE.fault;
      const everywhere = fault.hosts.length === this.history.hosts.length && fault.hosts.length > 1;
      const where = everywhere ? "all" : fault.hosts.join(", ");
      const title = `${fault.what}: ${where}, ${seconds(fault.from, 3)} for ${seconds(fault.to - fault.from, 3)}`;
      const bar = this.box(fault.from, fault.to, top, LANE.fault - 3, "fault", title);
      if (!bar) continue;
      found.push(bar);
      const text = everywhere && fault.what.endsWith(" all") ? fault.what : `${fault.what} ${where}`, x = Number(bar.getAttribute("x"));
      if (text.length * 6 < Number(bar.getAttribute("width")) - 6) {
        found.push(draw("text", { x: x + 4, y: top + 9.5, class: "in-fault" }, text));
      }
    }
    return found;
  }

  ackBars(y) {
    const { acks } = this.history, wide = 3;
    const counts = new Map();
    for (const at of acks) {
      if (at < this.from || at > this.to) continue;
      const cell = Math.floor((this.x(at) - LANE.left) / wide);
      counts.set(cell, (counts.get(cell) ?? 0) + 1);
    }
    const most = Math.max(1, ...counts.values());
    let path = "";
    for (const [cell, count] of counts) {
      const height = Math.max(2, LANE.acks * count / most);
      path += `M${LANE.left + cell * wide} ${y + LANE.acks}v${-height.toFixed(1)}h${wide - 0.6}v${height.toFixed(1)}z`;
    }
    return draw("g", { class: "acks" },
      draw("path", { d: path }), draw("path", { d: `M${LANE.left} ${y + LANE.acks + 0.5}H${this.width - LANE.right}`, class: "ground" }));
  }

  nodeLane(host, y) {
    const { history } = this, color = colorOf(history, host);
    const spans = spansOf(history, `${host}.process`).filter(({ value }) => value !== null);
    const found = spans.map(({ from, to, value }) => value === "down"
      ? this.box(from, to, y + LANE.node / 2 - 1, 2, "rail down", `${host} is down`)
      : this.box(from, to, y, LANE.node, `rail ${RAIL[value]} ${color}`, `${host} is ${value}`));
    for (const { from, to, value } of spansOf(history, `${host}.role`)) {
      const name = value === "leader" ? `rail leads ${color}` : value === "candidate" || value === "prospective" ? "rail stands" : null;
      if (name) found.push(this.box(from, to, y, LANE.node, name, `${host} is ${value} of the metadata quorum`));
    }
    return found.filter(Boolean);
  }

  leaderLane(partition, y) {
    const { history } = this;
    const leaders = spansOf(history, `${partition}.leader`).map(({ from, to, value }) => {
      if (value === null) return null;
      const host = hostOf(history, value);
      const name = host ? `rail leads ${colorOf(history, host)}` : "rail none";
      return this.box(from, to, y, LANE.node - 4, name, `${partition}: ${host ? `${host} leads` : "no leader"}`);
    });
    const full = spansOf(history, `${partition}.replicas`).at(-1)?.value?.length ?? 0;
    const thin = spansOf(history, `${partition}.isr`).map(({ from, to, value }) =>
      value === null || value.length >= full ? null
        : this.box(from, to, y + LANE.node - 4, 3, "rail thin", `${partition}: ISR ${listed(value)}`));
    return [...leaders, ...thin].filter(Boolean);
  }

  axis(y) {
    const wide = this.to - this.from;
    const each = [1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 3e7, 6e7]
      .find(step => wide / step * 64 < this.width - LANE.left) ?? 3e8;
    const digits = Math.max(0, 6 - Math.floor(Math.log10(each)));
    const found = [];
    for (let at = Math.ceil(this.from / each) * each; at <= this.to; at += each) {
      const x = this.x(at).toFixed(1);
      found.push(draw("line", { x1: x, x2: x, y1: 2, y2: y, class: "grid" }));
      found.push(draw("text", { x, y: y + 12, "text-anchor": "middle", class: "label" }, seconds(at, digits)));
    }
    return found;
  }

  failureLine(y) {
    const x = this.x(this.history.facts.failure.at_us);
    return draw("line", { x1: x, x2: x, y1: 0, y2: y, class: "failure", visibility: x < LANE.left ? "hidden" : "visible" });
  }
}

const shortened = (text, most) => text.length > most ? `${text.slice(0, 4)}…${text.slice(4 - most + 1)}` : text;

// -- the ring

const RING = {
  margin: 24, badges: 44, ends: 0.1,
  wide: { x: 205, y: 165, radius: 43, client: { x: 36, y: 62 } },
  narrow: { x: 140, y: 150, radius: 46, client: { x: 150, y: 40 } },
};

function ringPlaces(history, shape) {
  const places = new Map();
  const hosts = history.hosts, count = hosts.length;
  const middle = { x: 330, y: 215 }, radii = count > 1 ? shape : { x: 0, y: 0 };
  hosts.forEach((host, number) => {
    const angle = -Math.PI / 2 + 2 * Math.PI * number / count;
    places.set(host, { x: middle.x + radii.x * Math.cos(angle), y: middle.y + radii.y * Math.sin(angle) });
  });
  history.clients.forEach((client, number) => places.set(client, { x: shape.client.x, y: shape.client.y + number * 80 }));
  return places;
}

function ringBounds(places, radius) {
  const xs = [...places.values()].map(place => place.x), ys = [...places.values()].map(place => place.y);
  const left = Math.min(...xs) - radius - RING.margin, top = Math.min(...ys) - radius - RING.margin / 2;
  return {
    left, top, width: Math.max(...xs) + radius + RING.margin - left, height: Math.max(...ys) + radius + RING.badges - top,
  };
}

class Ring {
  constructor(history, holder) {
    Object.assign(this, { history, holder });
    this.shapeFor(holder.clientWidth);
  }

  // Lay the hosts out for this width; whether that changed anything.
  shapeFor(available) {
    const shape = available < 460 ? RING.narrow : RING.wide;
    if (shape === this.shape) return false;
    this.shape = shape;
    this.places = ringPlaces(this.history, shape);
    this.radius = Math.min(shape.radius, 300 / Math.max(3, this.history.hosts.length) + 8);
    const { left, top, width, height } = this.bounds = ringBounds(this.places, this.radius);
    const svg = draw("svg", { viewBox: `${left} ${top} ${width} ${height}`, role: "img", "aria-label": "Nodes, links and messages" });
    svg.append(draw("defs", {},
      draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
        draw("path", { d: "M0 1L7 4L0 7z", class: "arrow-head" }))));
    [this.links, this.flights, this.nodes] = ["links", "flights", "nodes"].map(name => {
      const group = draw("g", { class: name });
      svg.append(group);
      return group;
    });
    this.holder.replaceChildren(svg);
    return true;
  }

  // The end points of a line from one host to another, moved aside so that the two directions do not meet.
  line(source, target, aside = 0) {
    const a = this.places.get(source), b = this.places.get(target);
    const dx = b.x - a.x, dy = b.y - a.y, length = Math.hypot(dx, dy) || 1;
    const ux = dx / length, uy = dy / length;
    const edge = host => this.history.clients.includes(host) ? 26 : this.radius + 3;
    return {
      x1: a.x + ux * edge(source) - uy * aside, y1: a.y + uy * edge(source) + ux * aside,
      x2: b.x - ux * edge(target) - uy * aside, y2: b.y - uy * edge(target) + ux * aside,
    };
  }

  showState(state) {
    this.links.replaceChildren(...this.drawnLinks(state));
    this.nodes.replaceChildren(
      ...this.history.hosts.map(host => this.drawnNode(state, host)), ...this.history.clients.map(host => this.drawnClient(state, host)));
  }

  drawnLinks(state) {
    const hosts = [...this.history.hosts, ...this.history.clients], found = [];
    hosts.forEach((source, i) => hosts.slice(i + 1).forEach(target => {
      const there = state.get(`${source}>${target}`), back = state.get(`${target}>${source}`);
      if (!there && !back) {
        if (this.history.hosts.includes(target)) found.push(draw("line", { ...this.line(source, target), class: "link" }));
      } else if (there === back) {
        found.push(...this.brokenLink(source, target, there, 0));
      } else {
        if (there) found.push(...this.brokenLink(source, target, there, 6));
        if (back) found.push(...this.brokenLink(target, source, back, 6));
      }
    }));
    return found;
  }

  brokenLink(source, target, what, aside) {
    const ends = this.line(source, target, aside);
    const x = (ends.x1 + ends.x2) / 2, y = (ends.y1 + ends.y2) / 2;
    const line = draw("line", { ...ends, class: `link ${what}` }, draw("title", {}, `${source} → ${target}: ${what}`));
    if (aside) line.setAttribute("marker-end", "url(#arrow)");
    if (what === "slow") return [line];
    return [line, draw("path", { d: `M${x - 5} ${y - 5}l10 10m0 -10l-10 10`, class: "cross" })];
  }

  drawnNode(state, host) {
    const { x, y } = this.places.get(host);
    const of = what => state.get(`${host}.${what}`);
    const process = of("process"), role = of("role"), radius = this.radius;
    const isUp = process !== "down";
    const group = draw("g", { transform: `translate(${x} ${y})`, class: `node ${process} ${colorOf(this.history, host)} ${isUp && role ? role : ""}` });
    group.append(draw("circle", { r: radius, class: "body" }));
    if (isUp && role === "leader") group.append(draw("circle", { r: radius - 4.5, class: "inner" }));
    group.append(draw("text", { y: isUp ? -12 : -3, class: "name" }, host));
    const lines = isUp ? [role ?? "starting", of("epoch") === undefined ? "" : `epoch ${of("epoch")}`] : ["down"];
    lines.forEach((text, number) => group.append(draw("text", { y: (isUp ? 5 : 14) + number * 15, class: number ? "detail" : "role" }, text)));
    this.badges(state, host).forEach(([name, text], number) => {
      const wide = text.length * 6.3 + 14, top = radius + 6 + number * 19;
      group.append(
        draw("rect", { x: -wide / 2, y: top, width: wide, height: 16, rx: 8, class: `badge ${name}` }),
        draw("text", { y: top + 11.8, class: `badge-text ${name}` }, text));
    });
    return group;
  }

  badges(state, host) {
    const found = [];
    if (state.get(`${host}.active`)) found.push(["active", "active controller"]);
    const process = state.get(`${host}.process`), role = state.get(`${host}.role`), votes = state.get(`${host}.votes`);
    if (process !== "down" && votes && (role === "candidate" || role === "prospective")) {
      const kind = role === "candidate" ? "votes" : "pre-votes";
      found.push(["votes", `${votes.length} of ${state.get(`${host}.voters`).length} ${kind}`]);
    }
    if (process === "paused" || process === "stopping") found.push(["warn", process]);
    if (state.get(`${host}.fenced`)) found.push(["warn", "fenced"]);
    const kept = state.get(`${host}>`);
    if (kept) found.push(["warn", kept]);
    return found;
  }

  drawnClient(state, host) {
    const { x, y } = this.places.get(host), process = state.get(`${host}.process`) ?? "up";
    const text = shortened(host, 14), wide = Math.max(64, text.length * 6.6 + 14);
    return draw("g", { transform: `translate(${x} ${y})`, class: `client ${process}` },
      draw("rect", { x: -wide / 2, y: -15, width: wide, height: 30, rx: 8 }), draw("text", { y: 4 }, text),
      draw("title", {}, `${host} is ${process}`));
  }

  showMessages(flights) {
    const found = [], lines = new Set(), labels = new Map();
    for (const { message, part, isLost } of flights) {
      if (message.source === message.target) continue;
      const ends = this.line(message.source, message.target, 7);
      const way = RING.ends + (1 - 2 * RING.ends) * part;
      const x = ends.x1 + (ends.x2 - ends.x1) * way, y = ends.y1 + (ends.y2 - ends.y1) * way;
      const link = `${message.source}>${message.target}`;
      if (!lines.has(link)) {
        lines.add(link);
        found.unshift(draw("line", { ...ends, class: "path", "marker-end": "url(#arrow)" }));
      }
      const name = `dot ${message.group} ${message.isResponse ? "response" : ""} ${isLost ? "lost" : ""}`;
      found.push(draw("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 5, class: name }));
      const text = message.api + (message.isResponse ? " ✓" : "");
      if (!labels.has(link)) labels.set(link, { ...this.besides(ends, x, y), texts: new Map() });
      const { texts } = labels.get(link);
      texts.set(text, (texts.get(text) ?? 0) + 1);
    }
    if (labels.size <= 8) for (const label of labels.values()) found.push(...this.flightLabel(label));
    this.flights.replaceChildren(...found);
  }

  // Where the label of a message stands: on the outer side of its direction.
  besides({ x1, y1, x2, y2 }, x, y) {
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    return { x: x - (y2 - y1) / length * 26, y: y + (x2 - x1) / length * 17 + 4 };
  }

  flightLabel({ x, y, texts }) {
    const [[text, count], ...more] = texts;
    const told = `${text}${count > 1 ? ` ×${count}` : ""}${more.length ? ` +${more.length}` : ""}`;
    const wide = told.length * 6.1;
    const { bounds } = this;
    const left = Math.min(Math.max(x, bounds.left + wide / 2), bounds.left + bounds.width - wide / 2);
    return [draw("text", { x: left.toFixed(1), y: y.toFixed(1), class: "flight" }, told)];
  }
}

// -- the logs

const BARS = { numbers: 112, row: 26, cell: 12, wideFrom: 460 };

function quorumLog(history, state) {
  const voters = history.controllers.map(host => [host, state.get(`${host}.epoch`) ?? -1, state.get(`${host}.role`)]);
  const leader = voters.filter(([, , role]) => role === "leader").sort((a, b) => b[1] - a[1])[0];
  return {
    name: "metadata quorum",
    facts: leader ? `leader ${leader[0]}, epoch ${leader[1]}, voters ${listed(state.get(`${leader[0]}.voters`))}` : "no leader",
    isBad: !leader,
    replicas: history.hosts.map(host => ({
      host, prefix: host, isMember: leader && state.get(`${host}.epoch`) === leader[1], isLeader: leader?.[0] === host,
      note: state.get(`${host}.role`) ?? "", isUp: state.get(`${host}.process`) !== "down",
    })),
  };
}

function partitionLog(history, state, name) {
  const isr = state.get(`${name}.isr`), replicas = state.get(`${name}.replicas`), elr = state.get(`${name}.elr`) ?? [];
  if (!replicas) return { name, facts: "is not there", replicas: [] };
  const leader = state.get(`${name}.leader`), thin = isr.length < replicas.length;
  const facts = `${leader < 0 ? "no leader" : `leader ${hostOf(history, leader)}`}, leader epoch ${state.get(`${name}.leader_epoch`)}, ISR ${listed(isr)}`;
  return {
    name, facts: facts + (elr.length ? `, ELR ${listed(elr)}` : ""), isBad: leader < 0, isThin: thin,
    replicas: [...replicas].sort((a, b) => a - b).map(id => {
      const host = hostOf(history, id), prefix = `${host}.${name}`;
      const epoch = state.get(`${prefix}.leader_epoch`), role = state.get(`${prefix}.role`);
      return {
        host, prefix, isMember: isr.includes(id), isLeader: id === leader,
        note: role ? `${role}, e${epoch}` : "", isUp: state.get(`${host}.process`) !== "down",
      };
    }),
  };
}

// The offsets to draw: the newest ones, with room for the replica that is behind most.
function offsetWindow(replicas, cells) {
  const ends = replicas.map(one => one.end);
  const last = Math.max(cells, ...ends);
  const marks = replicas.flatMap(one => [one.end, one.highWatermark]);
  const first = Math.max(0, Math.min(last - cells, ...marks.map(mark => mark - 3)));
  return { first, last };
}

function drawnLog(history, state, log, width) {
  const block = make("div", { class: "log" });
  const facts = make("span", { class: log.isBad ? "bad" : log.isThin ? "warn" : "quiet" }, log.facts);
  block.append(make("h3", {}, log.name, " ", facts));
  const replicas = log.replicas.map(one => ({
    ...one,
    start: state.get(`${one.prefix}.log_start_offset`) ?? 0, end: state.get(`${one.prefix}.log_end_offset`) ?? 0,
    highWatermark: state.get(`${one.prefix}.high_watermark`) ?? 0,
  }));
  if (!replicas.length) return block;
  const isWide = width >= BARS.wideFrom, label = isWide ? 148 : 104;
  const room = Math.max(40, width - label - BARS.numbers);
  const { first, last } = offsetWindow(replicas, Math.max(8, Math.floor(room / BARS.cell)));
  const svg = draw("svg", { width, height: replicas.length * BARS.row, role: "img", "aria-label": `${log.name}: ${log.facts}` });
  replicas.forEach((one, number) => svg.append(drawnReplica(history, one, number * BARS.row, { first, last, label, room, isWide, width })));
  block.append(svg);
  return block;
}

function drawnReplica(history, one, y, { first, last, label, room, isWide, width }) {
  const x = offset => label + room * (Math.min(Math.max(offset, first), last) - first) / Math.max(1, last - first);
  const group = draw("g", { class: `replica ${colorOf(history, one.host)} ${one.isUp ? "" : "down"}`, transform: `translate(0 ${y})` });
  group.append(
    draw("circle", { cx: 7, cy: 12, r: 4.5, class: one.isMember ? "member" : "outside" }),
    draw("text", { x: 18, y: 16, class: "host" }, one.host + (one.isLeader ? " ★" : "")),
    draw("text", { x: label - 8, y: 16, "text-anchor": "end", class: "note" }, isWide ? one.note : shortenedNote(one.note)));
  group.append(draw("rect", { x: label, y: 4, width: room, height: 16, class: "track" }));
  const committed = Math.min(one.highWatermark, one.end);
  group.append(
    draw("rect", { x: x(one.start), y: 4, width: Math.max(0, x(committed) - x(one.start)), height: 16, class: "committed" }),
    draw("rect", { x: x(committed), y: 4, width: Math.max(0, x(one.end) - x(committed)), height: 16, class: "uncommitted" }));
  const cell = room / Math.max(1, last - first);
  if (cell >= 5) {
    let path = "";
    for (let offset = Math.max(first + 1, one.start + 1); offset < one.end; offset++) path += `M${x(offset).toFixed(1)} 4v16`;
    group.append(draw("path", { d: path, class: "cells" }));
  }
  if (first > one.start) group.append(draw("path", { d: `M${label + 3} 2l-4 10h5l-4 10`, class: "torn" }));
  group.append(draw("path", { d: `M${x(one.highWatermark).toFixed(1)} 1v22`, class: "high-watermark" }));
  group.append(draw("text", { x: width, y: 16, "text-anchor": "end", class: "numbers" },
    `${one.start ? `${one.start}…` : ""}${one.end} · HW ${one.highWatermark}`));
  group.append(draw("title", {}, `${one.host}: log start ${one.start}, log end ${one.end}, high watermark ${one.highWatermark}`));
  return group;
}

const shortenedNote = note => note.replace(/^(leader|follower), /, "").replace("prospective", "prosp.").replace("unattached", "unatt.");
