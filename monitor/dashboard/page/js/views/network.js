// The topology, live: load and failures, what a tree, a partition or a filter uses, and details of
// the switch or host that is picked.

import { copyable, quoted } from "../actions.js";
import { call, get } from "../api.js";
import { card, h, pill, show, table } from "../dom.js";
import { number } from "../format.js";
import { HostDetail } from "../host_detail.js";
import { SwitchDetail, useOf } from "../switch_detail.js";
import { linkName, TopologyMap } from "../topology_map.js";

const READ_EVERY = 2_000; // milliseconds
const WAIT = 300; // milliseconds without typing before the filter is explained
const MOST_LISTED = 12; // switches that are down

const LEGEND = [
  ["node switch good", "switch up"], ["node switch bad", "switch down"], ["node switch idle", "not known yet"],
  ["node host good", "host"], ["node host bad", "host out of reach"], ["link down", "link down"],
  ["node switch used", "carries it"], ["node switch changes", "would change"], ["level", "fullest table"],
];

export class Network {
  constructor(live, picked) {
    this.live = live;
    this.figures = new Map(); // id of a switch to its newest figures
    this.partitions = [];
    this.overlay = {};
    this.map = new TopologyMap(live, { pick: (id) => this.#pick(id) });
    this.summary = h("p", { class: "tools", role: "status" });
    this.detail = h("div", { class: "detail" });
    this.choice = h("select", { onchange: () => this.#choose() });
    this.space = h("select", { onchange: () => this.#later() });
    this.host = h("select", { onchange: () => this.#later() });
    this.filter = h("input", { size: "36", autocomplete: "off", spellcheck: "false", placeholder: "price >= 420",
      "aria-describedby": "network-found", oninput: () => this.#later() });
    this.found = h("div", { id: "network-found", "aria-live": "polite" });
    this.element = h("div", { class: "view" }, h("h1", null, "Network"), this.summary,
      h("div", { class: "tools" }, h("label", null, "Show ", this.choice),
        h("label", null, "Space ", this.space), h("label", null, "Subscriber ", this.host),
        h("label", { class: "wide" }, "Filter ", this.filter),
        copyable("GET", "topology", undefined, "dzflow topology")),
      h("div", null, this.map.element, legend()), this.found, this.detail);
    this.#open(picked);
    if (live.role === "operator") {
      this.#read();
      this.timer = setInterval(() => this.#read(), READ_EVERY);
    }
  }

  close() {
    clearInterval(this.timer);
    clearTimeout(this.typing);
  }

  update() {
    const { topology } = this.live;
    if (!topology) return;
    this.#offerChoices(topology);
    this.#summarise(topology);
    this.#mark();
    this.map.update();
    this.opened?.update();
  }

  // What is picked

  #pick(id) {
    history.pushState(null, "", `#/network/${encodeURIComponent(id)}`); // the view stays as it is
    this.#open(id);
    this.update();
  }

  #open(id) {
    this.picked = id;
    const isHost = this.live.topology?.hosts.some((one) => one.id === id);
    this.opened = !id ? null : isHost ? new HostDetail(this.live, id)
      : new SwitchDetail(this.live, id, (name) => this.figures.get(name));
    show(this.detail, this.opened?.element ??
      h("p", { class: "note" }, "Pick a switch to see its tables, or a host to see what it wants and gets."));
  }

  // What is shown on the map

  #mark() {
    const { switches, links, hosts } = this.overlay;
    const loads = new Map([...this.figures].map(([id, one]) => [id, useOf(one)]));
    const tree = (this.live.trees ?? this.live.topology.trees).find((one) => `tree ${one.number}` === this.choice.value);
    this.map.mark({ switches, hosts, loads, links: tree ? new Set(tree.links.map(linkName)) : links, picked: this.picked });
  }

  #summarise(topology) {
    const present = topology.switches.map((one) => this.live.switches.get(one.id) ?? one);
    const down = present.filter((one) => one.state === "down");
    const broken = topology.links.filter((link) => !link.up);
    const key = JSON.stringify([present.length, down, broken, topology.hosts.length]);
    if (key === this.summed) return;
    this.summed = key;
    const up = present.filter((one) => one.state === "up").length;
    show(this.summary,
      pill(up === present.length ? "good" : "bad", `${number(up)} of ${number(present.length)} switches up`),
      pill(broken.length ? "bad" : "good", broken.length
        ? `${number(broken.length)} of ${number(topology.links.length)} links down`
        : `${number(topology.links.length)} links up`),
      h("span", null, `${number(topology.hosts.length)} hosts`),
      down.slice(0, MOST_LISTED).map((one) => h("span", null,
        h("a", { href: `#/network/${encodeURIComponent(one.id)}` }, one.id), ` is down: ${one.reason ?? "it is not connected"}`)),
      down.length > MOST_LISTED && h("span", null, `and ${number(down.length - MOST_LISTED)} more`));
  }

  #offerChoices(topology) {
    const trees = (this.live.trees ?? topology.trees).map((one) => `tree ${one.number}`);
    offer(this.choice, [["all", "all links"], ...trees.map((name) => [name, name]),
      ...this.partitions.map((id) => [`partition ${id}`, `partition ${id}`])]);
    offer(this.space, [...this.live.spaces.keys()].sort().map((name) => [name, name]));
    offer(this.host, topology.hosts.map((one) => [one.id, one.id]));
  }

  #clear() {
    this.overlay = {};
    show(this.found);
  }

  async #choose() {
    const partition = this.choice.value.startsWith("partition ") ? this.choice.value.slice(10) : "";
    this.filter.value = "";
    this.#clear();
    this.update();
    if (!partition) return;
    const path = `partitions/${encodeURIComponent(partition)}/reach`;
    show(this.found, h("p", { class: "empty" }, "Finding what it uses…"));
    try {
      const reach = await get(path);
      if (this.choice.value !== `partition ${partition}`) return; // something else was chosen meanwhile
      this.overlay = {
        switches: new Map(reach.switches.map((one) => [one.id, "used"])),
        links: new Set(reach.links.map(linkName)),
        hosts: new Map([...reach.publishers, ...reach.subscribers].map((id) => [id, "used"])),
      };
      show(this.found, reachCard(reach, copyable("GET", path)));
      this.update();
    } catch (error) {
      show(this.found, h("p", { class: "error" }, error.message));
    }
  }

  #later() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.#explain(), WAIT);
  }

  async #explain() {
    const filter = this.filter.value.trim();
    this.filter.setAttribute("aria-invalid", "false");
    if (!filter) {
      if (!this.choice.value.startsWith("partition ")) this.#clear();
      return this.update();
    }
    this.choice.value = "all";
    const body = { space: this.space.value, host: this.host.value, filter };
    try {
      const found = await call("POST", "explain", body);
      if (filter !== this.filter.value.trim()) return; // more was typed meanwhile
      this.overlay = touched(found, this.live.topology);
      show(this.found, explainedCard(found, body));
    } catch (error) {
      this.filter.setAttribute("aria-invalid", "true");
      this.overlay = {};
      show(this.found, h("p", { class: "error" }, error.message));
    }
    this.update();
  }

  // Figures, which the stream does not bring

  async #read() {
    try {
      const [{ items }, partitions] = await Promise.all([get("switches"), get("partitions")]);
      const at = Date.now() / 1000;
      this.figures = new Map(items.map((one) => {
        const before = this.figures.get(one.id);
        const rate = before && one.operations >= before.operations ? (one.operations - before.operations) / (at - before.at) : null;
        return [one.id, { ...one, at, rate }];
      }));
      this.partitions = partitions.items.map((one) => one.id);
    } catch {
      return; // the page says so itself when the service does not answer; the next try comes soon
    }
    this.update();
  }
}

function legend() {
  return h("ul", { class: "legend", "aria-label": "Legend" },
    LEGEND.map(([name, text]) => h("li", null, h("i", { class: `symbol ${name}` }), text)));
}

function offer(select, options) {
  const key = JSON.stringify(options);
  if (select.dataset.offered === key) return;
  select.dataset.offered = key;
  const before = select.value;
  show(select, options.map(([value, text]) => h("option", { value }, text)));
  if (options.some(([value]) => value === before)) select.value = before;
}

/** What an explained filter would change, to be marked on the map. */
function touched(found, topology) {
  const at = new Map(topology.links.flatMap((link) =>
    [[`${link.a} output:${link.a_port}`, link], [`${link.b} output:${link.b_port}`, link]]));
  const links = new Set(), hosts = new Map();
  const isHost = new Set(topology.hosts.map((one) => one.id));
  for (const { switch: id, flow } of found.flows) {
    flow.actions.forEach((action, place) => {
      const link = at.get(`${id} ${action}`);
      if (link) links.add(linkName(link));
      if (isHost.has(flow.legs[place])) hosts.set(flow.legs[place], "used");
    });
  }
  return { switches: new Map(found.flows.map((one) => [one.switch, "changes"])), links, hosts };
}

function reachCard(reach, copies) {
  const columns = [
    { title: "Switch", value: (row) => h("a", { href: `#/network/${encodeURIComponent(row.id)}` }, row.id) },
    { title: "Entries", number: true, value: (row) => number(row.entries) },
  ];
  const names = (ids) => (ids.length > 20 ? `${number(ids.length)} hosts` : ids.join(", ") || "nobody");
  return card(`Partition ${reach.partition}`,
    h("p", null, `${number(reach.entries)} entries on ${number(reach.switches.length)} switches; ` +
      `${number(reach.links.length)} links${reach.trees.length ? ` of tree ${reach.trees.join(", ")}` : ""}. ` +
      `${reach.publishers.length ? `From ${names(reach.publishers)} to` : "To"} ${names(reach.subscribers)}. `, copies),
    table("Switches that it uses", columns, [...reach.switches].sort((a, b) => b.entries - a.entries),
      "It has no entries: nothing is both offered and wanted in it yet."));
}

function explainedCard(found, body) {
  const switches = Map.groupBy(found.flows, (one) => one.switch);
  const count = (all, change) => number(all.filter((one) => one.change === change).length);
  const columns = [
    { title: "Switch", value: ([id]) => h("a", { href: `#/network/${encodeURIComponent(id)}` }, id) },
    { title: "Adds", number: true, value: ([, all]) => count(all, "add") },
    { title: "Changes", number: true, value: ([, all]) => count(all, "modify") },
    { title: "Deletes", number: true, value: ([, all]) => count(all, "delete") },
    { title: "Leads to", value: ([, all]) => [...new Set(all.flatMap((one) => one.flow.legs.filter(Boolean)))].join(", ") },
  ];
  return card(`If ${body.host} subscribed`,
    h("p", null, `${number(found.regions.length)} regions in ${number(found.partitions.length)} partitions (${found.partitions.join(", ")}). `,
      found.note, copyable("POST", "explain", body,
        `dzflow explain --space ${body.space} --host ${body.host} --filter ${quoted(body.filter)}`)),
    table("Switches that would change", columns, [...switches],
      "No switch would change: nobody offers such events yet, or the entries are there already. Show one of its partitions to see what is used now."));
}
