// The topology, live: load and failures, what a tree, a partition or a filter uses, and details of
// the switch or host that is picked.

import { copyable, quoted } from "../actions.js";
import { get } from "../api.js";
import { Differences } from "../differences.js";
import { card, h, pill, show, table } from "../dom.js";
import { changesTable, Explainer, hostChoices, isForeign, offer, problemText, touched } from "../explaining.js";
import { FilterInput } from "../filter_input.js";
import { number } from "../format.js";
import { HostDetail } from "../host_detail.js";
import { HostProposals } from "../host_proposals.js";
import { poll } from "../polling.js";
import { SwitchDetail, useOf } from "../switch_detail.js";
import { linkName, TopologyMap } from "../topology_map.js";

const READ_EVERY = 2_000; // milliseconds
const MOST_LISTED = 12; // switches that are down

const LEGEND = [
  ["switch good", "switch up"], ["switch bad", "switch down"], ["switch idle", "not known yet"],
  ["host good", "host"], ["host bad", "host out of reach"], ["link down", "link down"],
  ["switch used", "carries it"], ["switch changes", "would change"], ["level", "fullest table"],
  ["link differs", "not as it should be"],
];

export class Network {
  constructor(live, picked) {
    this.live = live;
    this.picked = picked;
    this.opened = undefined; // until the topology tells whether a switch or a host is picked
    this.figures = new Map(); // id of a switch to its newest figures
    this.partitions = [];
    this.overlay = {};
    this.explainer = new Explainer(() => this.#question(), (...answer) => this.#showExplained(...answer));
    this.map = new TopologyMap(live, { pick: (id) => this.#pick(id) });
    this.differences = new Differences();
    this.summary = h("p", { class: "tools", role: "status" });
    this.trouble = h("p", { class: "error" });
    this.proposals = new HostProposals(live);
    this.detail = h("div", { class: "detail" });
    this.choice = h("select", { onchange: () => this.#choose() });
    this.space = h("select", { onchange: () => this.explainer.later() });
    this.host = h("select", { onchange: () => this.explainer.later() });
    this.filter = new FilterInput(() => this.live.spaces.get(this.space.value)?.attributes ?? [], () => this.explainer.later());
    this.found = h("div", { id: "network-found", "aria-live": "polite" });
    this.element = h("div", { class: "view" }, h("h1", null, "Network"), this.summary, this.trouble,
      h("div", { class: "tools" }, h("label", null, "Show ", this.choice),
        h("label", null, "Space ", this.space), h("label", null, "Subscriber ", this.host),
        this.filter.element, copyable("GET", "topology", undefined, "dzflow topology")), this.filter.error,
      h("div", null, this.map.element, legend()), this.differences.element, this.found,
      this.proposals.element, this.detail);
    this.stop = live.role === "operator" ? poll(() => this.#read(), READ_EVERY) : () => {};
  }

  close() {
    this.stop();
    this.explainer.stop();
    this.opened?.close?.();
  }

  update() {
    const { topology } = this.live;
    if (!topology) return;
    if (this.opened === undefined) this.#open(this.picked || this.live.host);
    this.#offerChoices(topology);
    this.#summarise(topology);
    this.differences.update(topology);
    this.#mark();
    this.map.update();
    this.proposals.update();
    this.opened?.update();
  }

  // What is picked

  #pick(id) {
    history.pushState(null, "", `#/network/${encodeURIComponent(id)}`); // the view stays as it is
    this.#open(id);
    this.update();
  }

  #open(id) {
    this.opened?.close?.();
    this.picked = id;
    const isHost = this.live.topology.hosts.some((one) => one.id === id);
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
    this.map.mark({ switches, hosts, loads, links: tree ? new Set(tree.links.map(linkName)) : links,
      picked: this.picked, ends: this.differences.ends });
  }

  #summarise(topology) {
    const present = topology.switches.map((one) => this.live.switches.get(one.id) ?? one);
    const down = present.filter((one) => one.state === "down");
    const broken = topology.links.filter((link) => !link.up);
    const up = present.filter((one) => one.state === "up").length;
    const differ = topology.differences?.length ?? 0;
    const key = JSON.stringify([up, present.length, down, broken, topology.hosts.length, differ]);
    if (key === this.summed) return;
    this.summed = key;
    show(this.summary,
      pill(up === present.length ? "good" : "bad", `${number(up)} of ${number(present.length)} switches up`),
      pill(broken.length ? "bad" : "good", broken.length
        ? `${number(broken.length)} of ${number(topology.links.length)} links down`
        : `${number(topology.links.length)} links up`),
      differ > 0 && pill("warn", differ === 1 ? "1 difference" : `${number(differ)} differences`),
      h("span", null, `${number(topology.hosts.length)} hosts`),
      down.slice(0, MOST_LISTED).map((one) => h("span", null,
        h("a", { href: `#/network/${encodeURIComponent(one.id)}` }, one.id), ` is down: ${one.reason ?? "it is not connected"}`)),
      down.length > MOST_LISTED && h("span", null, `and ${number(down.length - MOST_LISTED)} more`));
  }

  #offerChoices(topology) {
    const trees = (this.live.trees ?? topology.trees).map((one) => `tree ${one.number}`);
    offer(this.choice, [["all", "all links"], ...trees.map((name) => [name, name]),
      ...this.partitions.map((id) => [`partition ${id}`, `partition ${id}`])]);
    const chosen = [offer(this.space, [...this.live.spaces.keys()].sort().map((name) => [name, name])),
      offer(this.host, hostChoices(this.live))];
    if (chosen.some(Boolean)) this.explainer.later();
  }

  #clear() {
    this.overlay = {};
    show(this.found);
  }

  async #choose() {
    const partition = this.choice.value.startsWith("partition ") ? this.choice.value.slice(10) : "";
    this.explainer.stop();
    this.filter.clear();
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

  #question() {
    if (this.filter.value) return { space: this.space.value, host: this.host.value, filter: this.filter.value };
    this.#blame(null);
    if (!this.choice.value.startsWith("partition ")) this.#clear();
    this.update();
    return null;
  }

  #showExplained(body, found, problem) {
    this.choice.value = "all";
    this.#clear();
    this.#blame(problem);
    if (found) {
      this.overlay = touched(found.flows, this.live.topology);
      show(this.found, explainedCard(found, body));
    }
    this.update();
  }

  /** Show a problem (null: none) where it is: at the filter, or at the host if the token is of another one. */
  #blame(problem) {
    const foreign = Boolean(problem) && isForeign(problem);
    this.host.setAttribute("aria-invalid", String(foreign));
    this.filter.showProblem(foreign ? null : problem);
    if (foreign) show(this.found, h("p", { class: "error" }, problemText(problem)));
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
      show(this.trouble);
    } catch (error) {
      show(this.trouble, `How full the switches are is not known: ${error.message}`);
    }
    this.live.dispatchEvent(new Event("change"));
  }
}

function legend() {
  return h("ul", { class: "legend", "aria-label": "Legend" },
    LEGEND.map(([name, text]) => h("li", null, h("i", { class: `symbol ${name}` }), text)));
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
  return card(`If ${body.host} subscribed`,
    h("p", null, `${number(found.regions.length)} regions in ${number(found.partitions.length)} partitions (${found.partitions.join(", ")}). `,
      found.note, copyable("POST", "explain", body,
        `dzflow explain --space ${body.space} --host ${body.host} --filter ${quoted(body.filter)}`)),
    changesTable(found.flows),
    !found.flows.length && h("p", { class: "note" }, "Show one of its partitions to see what is used now."));
}
