// A history as `encoding.py` writes it, and the state of the cluster at each of its steps. Nothing here draws.
"use strict";

const CHECKPOINT_EVERY = 250;
const NEAR_END_US = 100_000;
const OFFSETS = { log_start_offset: "log start", log_end_offset: "log end", high_watermark: "high watermark" };

function decodeHistory(data) {
  const history = { ...data, data, messages: decodeMessages(data), steps: decodeSteps(data), acks: [] };
  let at = data.from;
  for (const since of data.acks) history.acks.push(at += since);
  history.hosts = [...new Set([...data.controllers, ...data.brokers])];
  history.checkpoints = [new Map(Object.entries(data.start))];
  const state = new Map(history.checkpoints[0]);
  history.steps.forEach((step, number) => {
    applyStep(state, step);
    if ((number + 1) % CHECKPOINT_EVERY === 0) history.checkpoints.push(new Map(state));
  });
  history.changesOf = indexChanges(history);
  return history;
}

function decodeSteps(data) {
  let at = data.from;
  return data.steps.map(([since, kind, where, text, ...pairs], number) => {
    const changes = [];
    for (let i = 0; i < pairs.length; i += 2) changes.push([data.keys[pairs[i]], pairs[i + 1]]);
    const step = { number, at: at += since, kind: data.kinds[kind], where: data.places[where], text, changes };
    if (!text) step.text = offsetsText(step);
    return step;
  });
}

function offsetsText(step) {
  const subject = step.changes[0][0].split(".").slice(0, -1).join(".");
  const name = subject === step.where ? "metadata log" : subject.slice(step.where.length + 1);
  const parts = step.changes.map(([key, value]) => `${OFFSETS[key.slice(key.lastIndexOf(".") + 1)]} ${value}`);
  return `${name}: ${parts.join(", ")}`;
}

function decodeMessages(data) {
  const { places, apis, messages } = data;
  const width = Math.max(...[...data.brokers, ...data.controllers, ...data.clients].map(host => places.indexOf(host))) + 1;
  const found = [];
  let sent = data.from;
  for (let i = 0; i < messages.length; i += 4) {
    const [since, took, link, api] = messages.slice(i, i + 4);
    sent += since;
    const [name, group] = apis[api >> 1];
    found.push({
      sent, arrived: took < 0 ? null : sent + took, source: places[Math.floor(link / width)], target: places[link % width],
      api: name, group, isResponse: api % 2 === 1,
    });
  }
  return found;
}

function applyStep(state, step) {
  for (const [key, value] of step.changes) {
    if (value === null) state.delete(key); else state.set(key, value);
  }
}

// The state after the step of this number; -1 for the state before all steps.
function stateAt(history, number) {
  const checkpoint = Math.floor((number + 1) / CHECKPOINT_EVERY);
  const state = new Map(history.checkpoints[checkpoint]);
  for (let i = checkpoint * CHECKPOINT_EVERY; i <= number; i++) applyStep(state, history.steps[i]);
  return state;
}

// The number of the last step at or before a time; -1 if there is none.
function stepAt(history, at) {
  let low = 0, high = history.steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (history.steps[middle].at <= at) low = middle + 1; else high = middle;
  }
  return low - 1;
}

// The nearest step in a direction (1 or -1) for which `wanted` holds; null if there is none.
function nearestStep(history, from, direction, wanted) {
  for (let i = from + direction; i >= 0 && i < history.steps.length; i += direction) {
    if (wanted(history.steps[i])) return i;
  }
  return null;
}

// The first message that was sent at or after a time.
function firstMessageFrom(history, at) {
  let low = 0, high = history.messages.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (history.messages[middle].sent < at) low = middle + 1; else high = middle;
  }
  return low;
}

// Messages on the way at a time, with how far they are, from 0 to 1. Each is shown for `shownUs` at least.
// One that never arrives stays half way for a while, unless it was sent just before the end: it may be on its way.
function messagesAt(history, at, shownUs) {
  const found = [];
  const longest = Math.max(shownUs, 2_000_000);
  for (let i = firstMessageFrom(history, at - longest); i < history.messages.length; i++) {
    const message = history.messages[i];
    if (message.sent > at) break;
    const isUnfinished = message.arrived === null && history.to - message.sent < NEAR_END_US;
    const isLost = message.arrived === null && !isUnfinished;
    const lasts = isLost ? 300_000 : isUnfinished ? NEAR_END_US : message.arrived - message.sent;
    const end = message.sent + Math.max(lasts, shownUs);
    if (at > end) continue;
    const part = end > message.sent ? (at - message.sent) / (end - message.sent) : 0;
    found.push({ message, part: isLost ? Math.min(part * 2, 0.5) : part, isLost });
  }
  return found;
}

// For a key: the spans of time in which it has each value, from the first step to the last.
function spansOf(history, key, valueOf = value => value) {
  const spans = [];
  let value = valueOf(history.data.start[key] ?? null), from = history.from;
  const end = at => { if (at > from) spans.push({ from, to: at, value }); };
  for (const { step, value: next } of history.changesOf.get(key) ?? []) {
    const now = valueOf(next);
    if (String(now) === String(value)) continue;
    end(step.at);
    [value, from] = [now, step.at];
  }
  end(history.to);
  return spans;
}

function indexChanges(history) {
  const found = new Map();
  for (const step of history.steps) {
    for (const [key, value] of step.changes) {
      if (!found.has(key)) found.set(key, []);
      found.get(key).push({ step, value });
    }
  }
  return found;
}
