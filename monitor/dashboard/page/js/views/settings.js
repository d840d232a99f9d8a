// Settings and about: what the service was started with, and what it consists of.

import { copyable } from "../actions.js";
import { get, token } from "../api.js";
import { card, h, pill, show, table } from "../dom.js";

const LINKS = [
  ["docs", "REST interface", "every call, with examples to try"],
  ["openapi.json", "OpenAPI document", "for programs that make clients"],
  ["dashboard/grafana.json", "Dashboard for Grafana", "a file to import there; it shows the metrics"],
];

export class Settings {
  constructor(live) {
    this.live = live;
    this.groups = null;
    this.about = h("div", null, h("p", { class: "empty" }, "Loading…"));
    this.found = h("div", { class: "groups" });
    this.count = h("span", { class: "note", role: "status" });
    this.search = h("input", { name: "setting", type: "search", size: "24", oninput: () => this.#draw() });
    this.changed = h("input", { type: "checkbox", name: "changed", onchange: () => this.#draw() });
    const tools = live.role === "operator" && h("div", { class: "tools", role: "search" },
      h("label", null, "Find ", this.search), h("label", null, this.changed, " only those that were set"), this.count);
    this.element = h("div", { class: "view" }, h("h1", null, "Settings and about"),
      h("div", { class: "grid two" }, this.about, card("Links", h("ul", { class: "links" }, LINKS.map(link), metrics()),
      h("p", { class: "note" }, "The documentation is in the folder ", h("code", null, "docs/"), " of the project; docs/README.md is its table of contents."))),
      h("h2", null, "Settings"), tools, this.found);
    this.#readAbout();
    if (live.role === "operator") this.#readSettings();
    else show(this.found, h("p", { class: "empty" }, "Settings are for operators: sign in with an operator's token."));
  }

  update() {}

  async #readAbout() {
    try {
      const { dzflow, python, system, etcd, packages } = await get("about");
      const rows = [["dzflow", dzflow], ["Python", python], ["etcd", etcd.join(", ") || "no member answers"],
        ["System", system], ...Object.entries(packages)];
      show(this.about, card("Versions", table("Of dzflow and what it runs on", [
        { title: "What", value: ([name]) => name },
        { title: "Version", value: ([, version]) => h("code", null, version) },
      ], rows)));
    } catch (error) {
      show(this.about, card("Versions", h("p", { class: "error" }, error.message)));
    }
  }

  async #readSettings() {
    show(this.found, h("p", { class: "empty" }, "Loading…"));
    try {
      this.groups = (await get("settings")).groups;
      this.#draw();
    } catch (error) {
      show(this.found, h("p", { class: "error" }, error.message));
    }
  }

  #draw() {
    const wanted = this.search.value.trim().toLowerCase();
    const fits = (item) => (!this.changed.checked || item.set)
      && (!wanted || `${item.name} ${item.variable} ${item.meaning}`.toLowerCase().includes(wanted));
    const groups = (this.groups ?? []).map((group) => ({ ...group, items: group.items.filter(fits) }))
      .filter((group) => group.items.length);
    const count = groups.reduce((sum, group) => sum + group.items.length, 0);
    this.count.textContent = `${count} settings`;
    show(this.found, groups.length ? groups.map(groupCard) : h("p", { class: "empty" }, "No setting fits."));
  }
}

const link = ([href, title, note]) => h("li", null,
  h("a", { href, target: "_blank", rel: "noopener" }, title), h("span", { class: "note" }, ` ${note}`));

/** A link sends no token, so that a service with tokens would refuse it: then a command for a shell. */
const metrics = () => (token()
  ? h("li", null, "Metrics", h("span", { class: "note" }, " for Prometheus; an operator's token is needed "), copyable("GET", "metrics"))
  : link(["metrics", "Metrics", "for Prometheus"]));

function groupCard(group) {
  const title = group.name ? `[${group.name}]` : "General";
  return card(title, group.meaning && h("p", { class: "note" }, group.meaning), table(`Settings: ${title}`, [
    { title: "Setting", value: (row) => h("code", { title: row.variable }, row.name) },
    { title: "Value", value: (row) => [valueOf(row), " ", row.set && !row.secret && pill("idle", "set")] },
    { title: "Default", value: (row) => (row.secret ? "" : h("code", null, text(row.default))) },
    { title: "Meaning", value: (row) => row.meaning },
  ], group.items));
}

const valueOf = (row) => (row.secret
  ? pill(row.set ? "good" : "idle", row.set ? "secret, set" : "secret, not set")
  : h("code", null, text(row.value)));

function text(value) {
  if (value === null || value === "") return "–";
  if (Array.isArray(value)) return value.length ? value.join(", ") : "none";
  return typeof value === "object" ? (Object.keys(value).length ? JSON.stringify(value) : "none") : String(value);
}
