// The login of a user, where the console has logins.
import { h, loggedIn, post } from "./console.js";

export function loginPage() {
  const user = h("input", { name: "user", autocomplete: "username", required: true, spellcheck: "false", autocapitalize: "none" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const why = h("p", { class: "warn small", role: "alert" });
  const form = h("form", { class: "login", onsubmit: async (event) => {
    event.preventDefault();
    why.textContent = "";
    try {
      await post("/api/login", { user: user.value, password: password.value });
      loggedIn();
    } catch (error) {
      why.textContent = error.message;
      password.value = "";
      password.focus();
    }
  } }, h("label", {}, "User", user), h("label", {}, "Password", password), h("button", { class: "go" }, "Log in"), why);
  return {
    element: h("div", { class: "card narrow" }, h("h1", {}, "Log in"),
      h("p", { class: "quiet" }, "As a user of the Kafka cluster. What you see and change here is what this user may see and change."),
      h("p", { class: "quiet small" }, "Where raftwerk up --secure made the cluster, security/admin.password in its directory has the password of admin, who may do everything."), form),
    focus() { user.focus(); },
  };
}
