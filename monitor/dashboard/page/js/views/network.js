// The topology, live; pick a switch or a host to see more of it.

import { get, records } from "../api.js";
import { card, h, pill, show, table } from "../dom.js";
import { filterText, number } from "../format.js";
import { linkName, TopologyMap } from "../topology_map.js";

const MOST_FLOWS = 200;

export class Network {
  constructor(live, picked) {
    this.live = live;
    this.picked = picked; // the id of a switch or a host
    this.tree = "";
    this.map = new TopologyMap(live, { pick: (id) => { location.hash = `#/network/${encodeURIComponent(id)}`; } });
    this.detail = h("div", { class: "detail", "aria-live": "polite" });
    this.choice = h("select", { onchange: () => { this.tree = this.choice.value; this.update(); } });
    this.element = h("div", { class: "view" }, h("h1", null, "Network"),
      h("p", { class: "tools" }, h("label", null, "Tree ", this.choice),
        h("span", { class: "note" }, "Pick a switch to see its tables, or a host to see what it wants.")),
      this.map.element, this.detail);
    this.#showPicked();
  }

  update() {
    const { topology } = this.live;
    if (!topology) return;
    const trees = this.live.trees ?? topology.trees;
    this.#offerTrees(trees);
    const tree = trees.find((one) => String(one.number) === this.tree);
    this.map.update();
    this.map.mark({ links: tree && new Set(tree.links.map(linkName)), picked: this.picked });
  }

  #offerTrees(trees) {
    const wanted = ["", ...trees.map((tree) => String(tree.number))];
    const present = [...this.choice.options].map((option) => option.value);
    if (wanted.join() === present.join()) return;
    show(this.choice, wanted.map((value) =>
      h("option", { value }, value === "" ? "all links" : `tree ${value}`)));
    this.choice.value = this.tree = wanted.includes(this.tree) ? this.tree : "";
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
