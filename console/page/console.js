// The state of the page, the stream of events that feeds it, and which view is shown.
import { accessPage } from "./access.js";
import { loginPage } from "./login.js";
import { groupPage, groupsPage } from "./groups.js";
import { overviewPage } from "./overview.js";
import { requestsPage } from "./requests.js";
import { rehearsalPage } from "./rehearsal.js";
import { storagePage } from "./storage.js";
import { topicPage, topicsPage } from "./topics.js";
import { transactionPage, transactionsPage } from "./transactions.js";

export const state = {
  heard: false,            // whether the console has told what there is
  about: { is_read_only: true, is_local: false, bootstrap: "", user: null, why_not_injected: null },
  clusterId: null, nodes: [], quorum: null, whyNoQuorum: null, summary: null, recordsPerS: null,
  partitions: new Map(),   // "topic\tpartition" -> [leader, epoch, replicas, isr, end offset]
  moved: new Set(),        // keys of which the end offset has just moved
  rates: new Map(),        // topic -> records a second
  history: [], story: [],
  probe: { running: false, acked: 0, longest_gap_ms: 0, points: [] },
  chaos: { running: false },
};
const HISTORY_MAX = 300, STORY_MAX = 500, POINTS_MAX = 900;

// An element; properties that begin with "on" are listeners, text is never read as HTML.
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((one) => one !== null && one !== undefined));
  return element;
}

export const number = (value) => value === null || value === undefined ? "–" : value.toLocaleString("en");
export const time = (ms) => new Date(ms).toLocaleTimeString("en-GB", { hour12: false }) + "." + String(ms % 1000).padStart(3, "0").slice(0, 1);
export const topicOf = (key) => key.slice(0, key.indexOf("\t"));
export const partitionOf = (key) => Number(key.slice(key.indexOf("\t") + 1));
export const stateOf = ([leader, , replicas, isr]) => leader < 0 ? "offline" : isr.length < replicas.length ? "under-replicated" : "in-sync";

export function toast(text, bad = false) {
  const line = h("p", bad ? { class: "bad" } : {}, text);
  document.getElementById("toast").append(line);
  setTimeout(() => line.remove(), bad ? 9000 : 4000);
}

async function answerOf(response) {
  const answer = await response.json().catch(() => ({ error: `HTTP ${response.status}` }));
  if (response.status === 401 && !response.url.endsWith("/api/login")) showLogin();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}
export const get = async (path) => answerOf(await fetch(path));
export const post = async (path, fields = {}) => answerOf(await fetch(path, {
  method: "POST", headers: { "content-type": "application/json", "x-raftwerk-console": "1" }, body: JSON.stringify(fields),
}));

// Does something that may fail: a failure is shown, and the buttons of the form wait meanwhile.
export async function attempt(work, element) {
  const buttons = element ? [...element.querySelectorAll("button"), element].filter((one) => one.tagName === "BUTTON") : [];
  buttons.forEach((one) => { one.disabled = true; });
  try {
    const answer = await work();
    if (answer && answer.done) toast(answer.done);
    return answer;
  } catch (error) {
    toast(error.message, true);
    return null;
  } finally {
    buttons.forEach((one) => { one.disabled = false; });
  }
}

let view = null;

// ---- the stream

function takePicture(news) {
  const isOther = news.whole && JSON.stringify(news.about) !== JSON.stringify(state.about);
  if (news.whole) Object.assign(state, { heard: true, about: news.about, clusterId: news.cluster_id, partitions: new Map(), nodes: [], quorum: null, whyNoQuorum: null,
    history: news.history, story: [] });
  state.summary = news.summary;
  if (news.nodes) state.nodes = news.nodes;
  if ("quorum" in news) state.quorum = news.quorum;
  if ("why_no_quorum" in news) state.whyNoQuorum = news.why_no_quorum;
  const elapsed = Math.max(news.at_ms - (state.atMs ?? news.at_ms - 1000), 1) / 1000;
  state.atMs = news.at_ms;
  state.moved = new Set();
  state.rates = new Map();
  for (const [key, row] of Object.entries(news.partitions ?? {})) {
    const former = state.partitions.get(key);
    if (former && row[4] > former[4] && former[4] >= 0) {
      state.moved.add(key);
      const topic = topicOf(key);
      state.rates.set(topic, (state.rates.get(topic) ?? 0) + (row[4] - former[4]) / elapsed);
    }
    state.partitions.set(key, row);
  }
  for (const key of news.gone ?? []) state.partitions.delete(key);
  if (news.records_per_s !== undefined) {
    state.recordsPerS = news.records_per_s;
    state.history.push([news.at_ms, news.records_per_s, news.summary.under_replicated + news.summary.offline]);
    state.history = state.history.slice(-HISTORY_MAX);
  }
  state.story = [...state.story, ...(news.story ?? [])].slice(-STORY_MAX);
  const problem = document.getElementById("problem");
  problem.hidden = !news.problem;
  problem.textContent = news.problem ? `What is shown was seen last: ${news.problem}` : "";
  document.getElementById("where").textContent = `${state.about.bootstrap}  ${state.clusterId ?? ""}`;
  const logout = document.getElementById("logout");
  logout.hidden = !state.about.user;
  logout.textContent = state.about.user ? `Log out ${state.about.user}` : "";
  document.getElementById("where").title = document.getElementById("where").textContent;
  if (isOther) show();  // forms depend on what this console may do
  else view?.update?.();
}

function takeProbe(news) {
  state.probe = { ...news, points: [...state.probe.points, ...news.points].slice(-POINTS_MAX) };
  view?.onProbe?.();
}

// ---- the login, where users have one

function showLogin() {
  source?.close();
  if (document.body.classList.contains("logged-out")) return;
  document.body.classList.add("logged-out");
  view = loginPage();
  document.getElementById("main").replaceChildren(view.element);
  document.getElementById("link").textContent = "";
  view.focus();
}

export function loggedIn() {
  document.body.classList.remove("logged-out");
  Object.assign(state, { heard: false, story: [], chaos: { running: false }, probe: { ...state.probe, running: false, points: [] } });
  connect();
  show();
}

document.getElementById("logout").addEventListener("click", async () => { if (await attempt(() => post("/api/logout"))) showLogin(); });

let source = null;
const closed = (one) => one.readyState === EventSource.CLOSED;

function connect() {
  source = new EventSource("/events");
  const link = document.getElementById("link");
  source.onopen = () => { link.textContent = "live"; link.classList.remove("lost"); };
  source.onerror = () => {
    link.textContent = "not connected";
    link.classList.add("lost");
    // A stream that is refused says no status: what the console answers to another request does.
    if (closed(source)) get("/api/about").catch(() => null).finally(() => setTimeout(() => { if (closed(source) && !document.body.classList.contains("logged-out")) connect(); }, 2000));
  };
  source.addEventListener("picture", (event) => takePicture(JSON.parse(event.data)));
  source.addEventListener("chaos", (event) => { state.chaos = JSON.parse(event.data); view?.onChaos?.(); });
  source.addEventListener("probe", (event) => takeProbe(JSON.parse(event.data)));
}

// ---- the views

const PAGES = [
  [/^\/?$/, overviewPage], [/^\/topics$/, topicsPage], [/^\/topics\/(.+)$/, topicPage],
  [/^\/groups$/, groupsPage], [/^\/groups\/(.+)$/, groupPage], [/^\/transactions$/, transactionsPage], [/^\/transactions\/(.+)$/, transactionPage],
  [/^\/access$/, accessPage], [/^\/storage$/, storagePage], [/^\/requests$/, requestsPage], [/^\/rehearsal$/, rehearsalPage],
];

export function show() {
  if (document.body.classList.contains("logged-out")) return;
  const path = location.hash.slice(1);
  for (const link of document.querySelectorAll("nav a")) {
    const target = link.getAttribute("href").slice(1);
    const current = target === "/" ? path === "/" || path === "" : path.startsWith(target);
    if (current) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  for (const [pattern, page] of PAGES) {
    const found = path.match(pattern);
    if (found) {
      view = page(...found.slice(1).map(decodeURIComponent));
      document.getElementById("main").replaceChildren(view.element);
      view.update?.();
      return;
    }
  }
  view = null;
  document.getElementById("main").replaceChildren(h("p", {}, "There is no such page."));
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* private windows have no storage */ }
});
try { const kept = localStorage.getItem("theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* as above */ }

// Keys: 1 to 8 for the pages, / for the filter.
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const target = /^[1-8]$/.test(event.key) && document.querySelectorAll("nav a")[event.key - 1].getAttribute("href");
  if (target) location.hash = target;
  if (event.key === "/") {
    const filter = document.querySelector("[data-filter]");
    if (filter) { event.preventDefault(); filter.focus(); }
  }
});
addEventListener("hashchange", show);
get("/api/about").then(() => { show(); connect(); }, () => { if (!document.body.classList.contains("logged-out")) { show(); connect(); } });
