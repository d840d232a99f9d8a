// Where the network is not what it should be, as discovery has found out: a list, and what to mark
// on the map.

import { card, h, pill, show } from "./dom.js";
import { number } from "./format.js";

const MOST = 50; // that are listed
const KINDS = {
  crossed: "crossed cable", "host-at-link": "cable at a host's port", missing: "missing cable",
  unexpected: "unexpected cable", "no-port": "no such port", refused: "refused switch",
};

export class Differences {
  constructor() {
    this.element = h("div", { id: "network-differences" });
    this.ends = new Set(); // the ports that differ, as SWITCH:PORT
  }

  /** Show those of a topology, and note their ports; nothing is drawn again that is the same. */
  update(topology) {
    const found = topology.differences ?? [];
    const key = JSON.stringify([found, topology.discovered]);
    if (key === this.shown) return;
    this.shown = key;
    this.ends = new Set(found.filter((one) => one.port).map((one) => `${one.switch}:${one.port}`));
    if (!found.length) return show(this.element);
    show(this.element, card(topology.discovered ? "Not as declared" : "Not as described",
      h("ul", { class: "differences" }, found.slice(0, MOST).map(item)),
      found.length > MOST && h("p", { class: "note" },
        `and ${number(found.length - MOST)} more; dzflow topology lists all`)));
  }
}

const item = (one) => h("li", null, pill("warn", KINDS[one.kind] ?? one.kind),
  one.switch && h("a", { href: `#/network/${encodeURIComponent(one.switch)}` }, one.switch),
  h("span", null, one.text));
