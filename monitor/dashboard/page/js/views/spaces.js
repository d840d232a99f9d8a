// Spaces: their attributes and their index.

import { card, h, pill, show, table } from "../dom.js";
import { number } from "../format.js";

export class Spaces {
  constructor(live) {
    this.live = live;
    this.element = h("div", { class: "view" });
  }

  update() {
    const spaces = [...this.live.spaces.values()].sort((a, b) => a.name.localeCompare(b.name));
    const now = JSON.stringify(spaces);
    if (now === this.drawn) return;
    this.drawn = now;
    show(this.element, h("h1", null, "Spaces"), spaces.length
      ? spaces.map(spaceCard)
      : h("p", { class: "empty" }, "There is no space yet: make one with PUT /spaces/{name}, or dzflow space put."));
  }
}

function spaceCard(space) {
  const columns = [
    { title: "Attribute", value: (row) => row.name },
    { title: "Type", value: (row) => row.type },
    { title: "Range", value: (row) => range(row) },
    { title: "Scale", value: (row) => row.scale ?? "" },
    { title: "Bits", number: true, value: (row) => row.bits ?? "by itself" },
  ];
  const index = Object.entries(space.index).map(([name, value]) => `${name} ${value}`).join(", ");
  return card(space.name,
    h("p", null, space.changing ? pill("warn", "its index is changing") : pill("good", "in use"),
      ` index: ${index}; version ${space.version}; ${number(space.partitions)} partitions; trees ${space.trees.join(", ")}; authentication ${space.authentication}`),
    table(`Attributes of ${space.name}`, columns, space.attributes, "It has no attributes."));
}

function range(row) {
  if (row.values) return row.values.join(", ");
  return row.min === undefined || row.min === null ? "" : `${row.min} to ${row.max}`;
}
