// Who may do what: access control lists, users with a password, and client quotas.
import { attempt, h, number, post } from "./console.js";
import { cellOf, mayChange, pick, previewOf, previewed, readAgain, section, table } from "./parts.js";

const KINDS = ["topic", "group", "transactional id", "cluster", "delegation token", "user"];
const OPERATIONS = ["produce", "consume", "all", "read", "write", "create", "delete", "alter", "describe", "describe-configs", "alter-configs", "cluster-action",
  "idempotent-write", "create-tokens", "describe-tokens", "two-phase-commit"];

const resourceOf = (one) => one.resource_type === "cluster" ? "cluster" : one.resource_name === "*" ? `every ${one.resource_type}`
  : `${one.resource_type} ${one.resource_name}${one.pattern === "prefix" ? " and all that begin so" : ""}`;

function aclTable(rows, buttonOf) {
  return table(["", "principal", "operation", "on", "from", ""], rows.map((one) => h("tr", {},
    h("td", {}, h("span", { class: `state ${one.permission === "deny" ? "down" : ""}` }, one.permission)), h("td", { class: "mono" }, one.principal),
    h("td", { "data-label": "operation" }, one.operation), h("td", { "data-label": "on" }, resourceOf(one)), h("td", { "data-label": "from" }, one.host === "*" ? "anywhere" : one.host),
    h("td", {}, buttonOf?.(one) ?? ""))), { class: "wrap-narrow" });
}

function aclsCard() {
  const place = h("div");
  const remove = (one) => mayChange() ? h("button", { onclick: previewOf(place, { path: "/api/acls/remove", fields: one, button: "Remove it", done: () => part.load(),
    told: (found) => h("div", {}, aclTable(found.acls), found.acls.some((row) => row.permission === "deny") ? h("p", { class: "quiet" }, "Without a denial something may be allowed that was not.") : null) }) }, "Remove…") : null;
  const part = section("Access control lists", "/api/acls", (found) => found.acls.length ? aclTable(found.acls, remove) : null, "There are no entries.");
  part.element.append(place);
  return part;
}

function addAclCard(again) {
  const permission = pick(["allow", "deny"]), principal = h("input", { placeholder: "alice, User:alice or *", required: true });
  const operations = pick(OPERATIONS), kind = pick(KINDS, { onchange: () => { name.disabled = kind.value === "cluster"; } });
  const name = h("input", { placeholder: "orders, or * for all", required: true }), pattern = pick([["literal", "with this name"], ["prefix", "that begin so"]]);
  const host = h("input", { placeholder: "any", size: "12" });
  return h("details", { class: "card wide" }, h("summary", {}, "Add an entry"), previewed({
    path: "/api/acls", button: "Add the entries", done: again, told: (found) => aclTable(found.acls),
    fields: () => ({ permission: permission.value, principal: principal.value, operations: [operations.value], resource_type: kind.value,
      ...(kind.value === "cluster" ? {} : { resource_name: name.value, pattern: pattern.value }), ...(host.value ? { host: host.value } : {}) }),
    inputs: [h("label", {}, "Permission", permission), h("label", {}, "Principal", principal), h("label", {}, "Operation", operations), h("label", {}, "On", kind),
      h("label", {}, "Name", name), h("label", {}, "Which", pattern), h("label", {}, "From the address", host)] }));
}

function usersCard() {
  const place = h("div");
  const part = section("Users with a SCRAM password", "/api/users", (found) => found.users.length ? table(["user", "mechanism", "#iterations", ""], found.users.map((one) => h("tr", {},
    h("td", { class: "mono" }, one.user), h("td", {}, one.mechanism), cellOf(number(one.iterations), "iterations"), h("td", {}, mayChange() ? h("button", { onclick: previewOf(place, {
      path: `/api/users/${encodeURIComponent(one.user)}/remove`, fields: { mechanism: one.mechanism }, button: "Remove the password", done: () => part.load(),
      told: () => h("p", {}, `${one.user} has no password for ${one.mechanism} any more, and cannot log in by it. What ACLs say of ${one.user} stays.`) }) }, "Remove…") : null))), { class: "wrap-narrow" }) : null,
  "No user has a password.");
  part.element.append(place);
  return part;
}

function passwordCard(again) {
  const user = h("input", { required: true, autocomplete: "off" }), password = h("input", { type: "password", required: true, autocomplete: "new-password" });
  const mechanism = pick(["SCRAM-SHA-512", "SCRAM-SHA-256"]);
  const form = h("form", { class: "row", onsubmit: async (event) => {
    event.preventDefault();
    if (await attempt(() => post("/api/users", { user: user.value, password: password.value, mechanism: mechanism.value }), form)) { form.reset(); readAgain(again); }
  } }, h("label", {}, "User", user), h("label", {}, "Password", password), h("label", {}, "Mechanism", mechanism), h("button", { class: "go" }, "Set the password"));
  return h("details", { class: "card wide" }, h("summary", {}, "Add a user, or change a password"), form);
}

const entityOf = (entity) => Object.entries(entity).map(([kind, name]) => name === null ? `default ${kind}` : `${kind} ${name}`).join(", ");
const quotaChange = (found) => table(["quota", "#from", "#to"], found.quotas.map((one) => h("tr", {}, h("td", { class: "mono" }, one.quota),
  cellOf(number(one.from), "from"), cellOf(one.to === null ? "removed" : number(one.to), "to"))));

function quotasCard() {
  const place = h("div");
  const part = section("Client quotas", "/api/quotas", (found) => found.quotas.length ? table(["whose", "quota", "#value", ""], found.quotas.flatMap((one) =>
    Object.entries(one.quotas).map(([quota, value]) => h("tr", {}, h("td", {}, entityOf(one.entity)), h("td", { class: "mono" }, quota), cellOf(number(value), "value"),
      h("td", {}, mayChange() ? h("button", { onclick: previewOf(place, { path: "/api/quotas", fields: { entity: one.entity, set: { [quota]: null } }, told: quotaChange,
        button: "Remove the quota", done: () => part.load() }) }, "Remove…") : null)))), { class: "wrap-narrow" }) : null, "There are no quotas.");
  part.element.append(place);
  return part;
}

const QUOTAS = [["producer_byte_rate", "bytes a second produced"], ["consumer_byte_rate", "bytes a second fetched"], ["request_percentage", "percentage of time"],
  ["controller_mutation_rate", "partitions a second made or deleted"], ["connection_creation_rate", "new connections a second (of an address)"]];

function setQuotaCard(again) {
  const user = h("input", { placeholder: "none, or * for the default", size: "22" }), client = h("input", { placeholder: "none, or * for the default", size: "22" });
  const address = h("input", { placeholder: "none, or * for the default", size: "22" }), quota = pick(QUOTAS), value = h("input", { type: "number", min: "0", step: "any", required: true });
  const entity = () => Object.fromEntries([["user", user], ["client-id", client], ["ip", address]].filter(([, one]) => one.value).map(([kind, one]) => [kind, one.value === "*" ? null : one.value]));
  return h("details", { class: "card wide" }, h("summary", {}, "Set a quota"), previewed({ path: "/api/quotas", button: "Set the quota", told: quotaChange, done: again,
    fields: () => ({ entity: entity(), set: { [quota.value]: Number(value.value) } }),
    inputs: [h("label", {}, "User", user), h("label", {}, "Client id", client), h("label", {}, "Address", address), h("label", {}, "Quota", quota), h("label", {}, "Value", value)] }));
}

export function accessPage() {
  const acls = aclsCard(), users = usersCard(), quotas = quotasCard();
  const forms = mayChange() ? [addAclCard(acls.load), passwordCard(users.load), setQuotaCard(quotas.load)] : [null, null, null];
  return { element: h("div", {}, h("h1", {}, "Access"), acls.element, forms[0], users.element, forms[1], quotas.element, forms[2]) };
}
