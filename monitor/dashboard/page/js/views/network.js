// The topology, live; pick a switch or a host to see more of it.

import { get, records } from "../api.js";
import { card, h, pill, s, show, table } from "../dom.js";
import { filterText, number } from "../format.js";
import { layout } from "../layout.js";

const WIDTH = 1000, HEIGHT = 460, MARGIN = 28;
const LEVEL = { up: "good", down: "bad", unknown: "idle" };
const MOST_FLOWS = 200;

export class Network {
  constructor(live, picked) {
    this.live = live;
    this.picked = picked; // the id of a switch or a host
    this.tree = "";
    this.drawing = h("div", { class: "drawing" });
    this.detail = h("div", { class: "detail", "aria-live": "polite" });
    this.choice = h("select", { onchange: () => { this.tree = this.choice.value; this.update(); } });
    this.element = h("div", { class: "view" }, h("h1", null, "Network"),
      h("p", { class: "tools" }, h("label", null, "Tree ", this.choice),
        h("span", { class: "note" }, "Pick a switch to see its tables, or a host to see what it wants.")),
      this.drawing, this.detail);
    this.#showPicked();
  }

  update() {
    const { topology } = this.live;
    if (!topology) return show(this.drawing, h("p", { class: "empty" }, "Loading the network…"));
    const trees = this.live.trees ?? topology.trees;
    this.#offerTrees(trees);
    const key = JSON.stringify([topology.switches.map((one) => one.id), topology.links, topology.hosts]);
    if (key !== this.key) {
      this.key = key;
      this.places = layout(topology.switches, topology.links, topology.hosts);
    }
    const now = JSON.stringify([key.length, [...this.live.switches.values()].map((one) => one.state),
      topology.links.map((link) => link.up), this.tree, this.picked, trees]);
    if (now === this.drawn) return;
    this.drawn = now;
    show(this.drawing, this.#draw(topology, trees.find((tree) => String(tree.number) === this.tree)));
  }

  #offerTrees(trees) {
    const wanted = ["", ...trees.map((tree) => String(tree.number))];
    const present = [...this.choice.options].map((option) => option.value);
    if (wanted.join() === present.join()) return;
    show(this.choice, wanted.map((value) =>
      h("option", { value }, value === "" ? "all links" : `tree ${value}`)));
    this.choice.value = this.tree = wanted.includes(this.tree) ? this.tree : "";
  }

  #at(id) {
    const place = this.places.get(id) ?? { x: 0.5, y: 0.5 };
    return [MARGIN + place.x * (WIDTH - 2 * MARGIN), MARGIN + place.y * (HEIGHT - 3.5 * MARGIN)];
  }

  /** Whether names fit beside each other at this height. */
  #hasRoom(y) {
    return this.places.size <= 40 || [...this.places.keys()].filter((id) => this.#at(id)[1] === y).length <= 40;
  }

  #draw(topology, tree) {
    const inTree = new Set((tree?.links ?? []).map(name));
    const links = topology.links.map((link) => {
      const [x1, y1] = this.#at(link.a), [x2, y2] = this.#at(link.b);
      const state = !link.up ? "down" : tree ? (inTree.has(name(link)) ? "used" : "unused") : "";
      return s("line", { class: `link ${state}`, x1, y1, x2, y2 });
    });
    const hanging = Map.groupBy(topology.hosts, (host) => host.switch);
    const nodes = topology.switches.map((one) => this.#switch(one, hanging.get(one.id) ?? []));
    const up = [...this.live.switches.values()].filter((one) => one.state === "up").length;
    const text = `${topology.switches.length} switches, ${up} up, ${topology.links.length} links, ${topology.hosts.length} hosts`;
    return s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "network", role: "group", "aria-label": text },
      links, nodes);
  }

  #switch(one, hosts) {
    const [x, y] = this.#at(one.id);
    const present = this.live.switches.get(one.id) ?? one;
    const apart = Math.min(16, 34 / Math.max(1, hosts.length));
    const leaves = hosts.map((host, place) => {
      const hx = x + (place - (hosts.length - 1) / 2) * apart, hy = y + 34;
      return [s("line", { class: "link host", x1: x, y1: y, x2: hx, y2: hy }),
        this.#node("host", host.id, host.unreachable ? "bad" : "good", hx, hy, 4,
          `host ${host.id}${host.unreachable ? `: ${host.unreachable}` : ""}`)];
    });
    const many = this.live.topology.switches.length > 40;
    const label = s("text", { class: "name", x, y: y - (many ? 9 : 13), "text-anchor": "middle" }, one.id);
    return [leaves, this.#node("switch", one.id, LEVEL[present.state] ?? "idle", x, y, many ? 6 : 10,
      `switch ${one.id}: ${present.state}${present.reason ? `, ${present.reason}` : ""}`),
    this.#hasRoom(y) && label];
  }

  #node(kind, id, level, x, y, size, title) {
    const pick = () => { location.hash = `#/network/${encodeURIComponent(id)}`; };
    const shape = kind === "switch"
      ? s("rect", { x: x - size, y: y - size, width: 2 * size, height: 2 * size, rx: size / 3 })
      : s("circle", { cx: x, cy: y, r: size });
    return s("g", {
      class: `node ${kind} ${level} ${id === this.picked ? "picked" : ""}`, tabindex: "0", role: "button",
      "data-id": id, "aria-label": title, onclick: pick,
      onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); } },
    }, s("title", null, title), shape);
  }

  async #showPicked() {
    if (!this.picked) return show(this.detail);
    show(this.detail, h("p", { class: "empty" }, "Loading…"));
    try {
      const topology = this.live.topology ?? await get("topology");
      const host = topology.hosts.find((one) => one.id === this.picked);
      show(this.detail, host ? await hostCard(host) : await switchCard(this.picked));
    } catch (error) {
      show(this.detail, card(this.picked, h("p", { class: "error" }, error.message)));
    }
  }
}

const name = (link) => [`${link.a}:${link.a_port}`, `${link.b}:${link.b_port}`].sort().join(" ");

async function hostCard(host) {
  const query = `?host=${encodeURIComponent(host.id)}`;
  const [wants, offers] = await Promise.all([records(`subscriptions${query}`), records(`advertisements${query}`)]);
  const columns = [
    { title: "Space", value: (row) => row.space },
    { title: "Filter", value: (row) => h("code", null, filterText(row.filter)) },
    { title: "State", value: (row) => pill(row.state === "active" ? "good" : "warn", row.state) },
    { title: "Regions", number: true, value: (row) => number(row.regions.length) },
  ];
  return card(`Host ${host.id}`,
    h("p", null, `At port ${host.port} of switch ${host.switch}. `,
      host.unreachable ? pill("bad", host.unreachable) : pill("good", "reachable")),
    table("Subscriptions", columns, wants, "It has no subscriptions."),
    table("Advertisements", columns, offers, "It has no advertisements."));
}

async function switchCard(id) {
  const path = `switches/${encodeURIComponent(id)}/flows?source=`;
  const [should, has] = await Promise.all([get(`${path}cp`), get(`${path}dp`)]);
  const key = (flow) => JSON.stringify([flow.table, flow.priority, flow.match, flow.in_port, flow.actions, flow.goto]);
  const wanted = new Set(should.items.map(key)), held = new Set(has.items.map(key));
  const missing = [...wanted].filter((one) => !held.has(one)).length;
  const extra = [...held].filter((one) => !wanted.has(one)).length;
  const columns = [
    { title: "Table", number: true, value: (row) => row.table },
    { title: "Priority", number: true, value: (row) => row.priority },
    { title: "Space", value: (row) => row.space ?? "" },
    { title: "Region", value: (row) => h("code", null, row.region ?? row.match ?? "any") },
    { title: "Actions", value: (row) => row.actions.join(", ") || "none" },
    { title: "Partition", value: (row) => row.partition ?? "" },
  ];
  const verdict = missing || extra
    ? pill("bad", `${missing} entries are missing, ${extra} are too many`)
    : pill("good", "control plane and switch agree");
  return card(`Switch ${id}`,
    h("p", null, verdict, ` ${number(has.items.length)} entries`),
    table(`Entries of ${id}`, columns, has.items.slice(0, MOST_FLOWS), "It has no entries."),
    has.items.length > MOST_FLOWS && h("p", { class: "note" }, `The first ${MOST_FLOWS} entries are shown; dzflow flows ${id} shows all.`));
}
