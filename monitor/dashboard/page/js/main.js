// The frame of the page: views by address, sign-in, theme, and the state of the connection.

import { setToken, token } from "./api.js";
import { h, pill, show } from "./dom.js";
import { Live } from "./live.js";
import { EventSpace } from "./views/event_space.js";
import { Network } from "./views/network.js";
import { Overview } from "./views/overview.js";
import { Requests } from "./views/requests.js";
import { Settings } from "./views/settings.js";
import { Spaces } from "./views/spaces.js";
import { TryIt } from "./views/try_it.js";
import { Workers } from "./views/workers.js";

const VIEWS = [
  { path: "overview", title: "Overview", view: Overview },
  { path: "network", title: "Network", view: Network },
  { path: "event-space", title: "Event space", view: EventSpace, operator: true },
  { path: "workers", title: "Workers", view: Workers, operator: true },
  { path: "requests", title: "Requests", view: Requests },
  { path: "try", title: "Try it", view: TryIt },
  { path: "spaces", title: "Spaces", view: Spaces },
  { path: "settings", title: "Settings", view: Settings },
];
const THEMES = ["auto", "light", "dark"];

const $ = (id) => document.getElementById(id);
let live = null, view = null, role = "";
let pressed = false; // a button is held down: an element that is replaced now would not be clicked

function start() {
  live?.stop();
  live = new Live();
  role = "";
  live.addEventListener("change", update);
  live.run();
  open();
}

/** The view that the address names, and what is picked in it. */
function route() {
  const [, path = "", ...rest] = location.hash.split("/");
  return { named: VIEWS.find((one) => one.path === path) ?? VIEWS[0], picked: decoded(rest.join("/")) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // it was typed by hand, and is what it says
  }
}

function open() {
  const { named, picked } = route();
  view?.close?.();
  view = null;
  document.title = `${named.title} – dzflow`;
  showNav(named);
  if (live.role === "none") return showSignIn();
  if (!live.role) return show($("main"), h("p", { class: "empty" }, live.problem || "Loading…"));
  if (named.operator && live.role !== "operator") {
    return show($("main"), h("p", { class: "empty" }, "This view is for operators: sign in with an operator's token."));
  }
  view = new named.view(live, picked);
  show($("main"), view.element);
  view.update();
}

function showNav(named) {
  show($("nav"), VIEWS.map((one) =>
    h("a", { href: `#/${one.path}`, "aria-current": one === named && "page" }, one.title)));
  // On a phone, the views are one row that scrolls.
  const nav = $("nav"), current = nav.querySelector("[aria-current]");
  nav.scrollLeft = current.offsetLeft - nav.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;
}

function update() {
  if (live.role !== role) {
    role = live.role;
    open();
  } else if (!view && role !== "none") {
    open();
  } else {
    refresh();
  }
  const { ready } = live;
  const level = { ready: "good", degraded: "warn" }[ready?.status] ?? "bad";
  show($("status"), pill(ready ? level : "bad", ready ? ready.status : "no answer"));
  $("sign-out").hidden = !token();
  $("sign-out").textContent = live.host ? `Sign out ${live.host}` : "Sign out";
  const lost = live.role && live.role !== "none" && !(live.connected && ready);
  $("notice").hidden = !lost;
  const text = lost ? `No live data: ${live.problem}. The page tries again by itself.` : "";
  if ($("notice").textContent !== text) $("notice").textContent = text;
}

/** Update the view; what has the focus keeps it, and scrolled tables stay where they are. */
function refresh() {
  if (!view || pressed) return;
  const active = document.activeElement;
  const key = active?.getAttribute("data-id") ?? active?.getAttribute("href");
  const scrolled = new Map(tables().map((one) => [one.dataset.id, [one.scrollLeft, one.scrollTop]]));
  view.update();
  for (const one of tables()) one.scrollTo(...(scrolled.get(one.dataset.id) ?? [0, 0]));
  if (key && !active.isConnected) {
    const name = CSS.escape(key);
    $("main").querySelector(`[data-id="${name}"], [href="${name}"]`)?.focus({ preventScroll: true });
  }
}

const tables = () => [...$("main").querySelectorAll(".scroll")];

function showSignIn() {
  const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true, size: "40" });
  show($("main"), h("form", { class: "card sign-in", onsubmit: (event) => {
    event.preventDefault();
    setToken(input.value.trim());
    start();
  } }, h("h1", null, "Sign in"),
  h("p", null, "This service asks for a token. An operator's token shows everything, a host's token what concerns the host. It is kept until this tab is closed."),
  live.problem && h("p", { class: "error", role: "alert" }, live.problem),
  h("label", null, "Token ", input), h("button", { type: "submit" }, "Sign in")));
  input.focus();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("dzflow-theme", theme);
  $("theme").textContent = `Theme: ${theme}`;
}

$("theme").addEventListener("click", () =>
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]));
$("sign-out").addEventListener("click", () => { setToken(""); start(); });
window.addEventListener("hashchange", open);
window.addEventListener("pointerdown", ({ button }) => { pressed = button === 0; });
// After a menu or another window, the button may be released where this page does not see it.
for (const end of ["pointerup", "pointercancel", "contextmenu", "blur", "visibilitychange"]) {
  window.addEventListener(end, () => { pressed = false; });
}
setTheme(THEMES.includes(localStorage.getItem("dzflow-theme")) ? localStorage.getItem("dzflow-theme") : "auto");
start();
