// Spaces: their attributes and index, a form to make and change them, and what their shapes let through.

import { act, copyable, outcome } from "../actions.js";
import { get, SLOW } from "../api.js";
import { meter } from "../charts.js";
import { card, h, pill, show, table } from "../dom.js";
import { count, number, percent } from "../format.js";
import { SpaceForm } from "./space_form.js";

const MOST_SHAPES = 20; // shown at first; the others on demand

export class Spaces {
  constructor(live) {
    this.live = live;
    this.operator = live.role === "operator";
    this.cards = new Map(); // by name: {element, drawn}
    this.list = h("div", { class: "view" });
    this.place = h("div"); // of the form
    this.said = outcome();
    this.element = h("div", { class: "view" },
      h("div", { class: "heading" }, h("h1", null, "Spaces"),
        this.operator && h("button", { type: "button", "data-id": "new-space", onclick: () => this.#edit(null) }, "New space")),
      this.place, this.said, this.list);
  }

  update() {
    const spaces = [...this.live.spaces.values()].sort((a, b) => a.name.localeCompare(b.name));
    const now = JSON.stringify(spaces);
    if (now === this.drawn) return;
    this.drawn = now;
    const before = this.cards;
    this.cards = new Map(spaces.map((space) => {
      const kept = before.get(space.name), drawn = JSON.stringify(space);
      return [space.name, kept?.drawn === drawn ? kept : { drawn, element: this.#card(space) }];
    }));
    show(this.list, spaces.length ? [...this.cards.values()].map((one) => one.element)
      : h("p", { class: "empty" }, "There is no space yet. ",
        this.operator ? "Make one with the button above, or with " : "An operator makes one with ", h("code", null, "dzflow space put"), "."));
  }

  #edit(space) {
    const form = new SpaceForm(space, (saved) => {
      show(this.place);
      if (!saved) return;
      this.said.className = "outcome";
      show(this.said, `${saved.name} ${space ? "has its new schema" : "was made"}: index version ${saved.version}, ${number(saved.partitions)} partitions.`);
    });
    show(this.said);
    show(this.place, form.element);
    form.start();
  }

  #card(space) {
    const columns = [
      { title: "Attribute", value: (row) => row.name },
      { title: "Type", value: (row) => row.type },
      { title: "Range or values", value: (row) => range(row) },
      { title: "Scale", value: (row) => row.scale ?? (isNumeric(row) ? "linear" : "–") },
      { title: "Bits", number: true, value: (row) => row.bits ?? "automatic" },
    ];
    const { kind, budget, shapes } = space.index;
    return card(space.name,
      h("p", null, space.changing ? pill("warn", "its index is changing") : pill("good", "in use"),
        ` index ${kind}, at most ${number(budget)} regions per filter${kind === "fields" ? ` of at most ${number(shapes)} shapes` : ""}; version ${space.version}. ${count(space.partitions, "partition")}. Events travel on ${space.trees.length === 1 ? "tree" : "trees"} ${space.trees.join(", ") || "–"}${space.authentication === "none" ? ", without tags" : `, and are ${space.authentication}`}.`),
      table(`Attributes of ${space.name}`, columns, space.attributes, "It has no attributes."),
      this.operator && this.#tools(space));
  }

  #tools(space) {
    const said = outcome(), path = `spaces/${encodeURIComponent(space.name)}`;
    const usage = h("div", { class: "usage" });
    const sure = h("span", { class: "tools" });
    const remove = h("button", { type: "button", class: "quiet", "data-id": `delete-${space.name}`, onclick: () => {
      const yes = h("button", { type: "button", class: "danger", onclick: async () => {
        show(sure);
        await act(said, `Delete ${space.name}`, "DELETE", path);
      } }, `Delete ${space.name}`);
      show(sure, "Really? Its schema, index and partitions go. ", yes,
        h("button", { type: "button", class: "quiet", onclick: () => { show(sure); remove.focus(); } }, "Keep it"),
        copyable("DELETE", path));
      yes.focus();
    } }, "Delete");
    return [
      h("div", { class: "tools" },
        h("button", { type: "button", class: "quiet", "data-id": `change-${space.name}`, onclick: () => this.#edit(space) }, "Change"),
        h("button", { type: "button", class: "quiet", "data-id": `shapes-${space.name}`, onclick: () => showUsage(usage, space.name) }, "Show shapes and unwanted events"),
        copyable("GET", `${path}/shapes/usage`), remove),
      sure, said, usage,
    ];
  }
}

/** What the shapes of a space let through; read when somebody asks, because it reads all records. */
async function showUsage(where, name) {
  show(where, h("p", { class: "empty" }, "Counting…"));
  try {
    const path = `spaces/${encodeURIComponent(name)}/shapes/usage`;
    const [usage, reports] = await Promise.all([get(path, { limit: SLOW }), get("reports")]);
    const counted = reports.items.find((item) => item.space === name)?.counters;
    show(where, h("h3", null, `Shapes of ${name}`), summary(usage, counted), shapes(usage, MOST_SHAPES, where));
  } catch (error) {
    show(where, h("p", { class: "error", role: "alert" }, error.message));
  }
}

function summary(usage, counted) {
  const real = counted?.received
    ? ` Applications have counted ${percent((counted.unwanted ?? 0) / counted.received)} of ${number(counted.received)} events as unwanted.`
    : " No application has reported events yet.";
  return h("p", null, `${number(usage.subscriptions)} active subscriptions have ${number(usage.regions)} regions. `,
    usage.unwanted !== null && [pill(usage.unwanted < 0.2 ? "good" : usage.unwanted < 0.6 ? "warn" : "bad", `${percent(usage.unwanted)} unwanted`),
      " is expected if all events are equally likely."], real, usage.note && ` Note: ${usage.note}.`);
}

function shapes(usage, most, where) {
  const shown = usage.items.slice(0, most), left = usage.items.length - shown.length;
  const list = h("div", null, table(`Shapes of ${usage.space}, those with most regions first`, [
    { title: "Shape", value: (row) => row.text },
    { title: "Subscriptions", number: true, value: (row) => number(row.subscriptions) },
    { title: "Regions", number: true, value: (row) => number(row.regions) },
    { title: "Unwanted in its regions", number: true, value: (row) => percent(row.unwanted) },
    { title: "Share of all unwanted events", value: (row) => (row.of_unwanted === null ? "–" : meter(row.of_unwanted, percent(row.of_unwanted))) },
  ], shown, "An index of the kind zorder has no dictionary of shapes."),
  left > 0 && h("button", { type: "button", class: "quiet", onclick: () => list.replaceWith(shapes(usage, Infinity, where)) }, `Show ${number(left)} more`));
  return list;
}

const isNumeric = ({ type }) => type === "int" || type === "float";

function range(row) {
  if (row.values) return row.values.join(", ");
  return row.min === undefined || row.min === null ? "" : `${row.min} to ${row.max}`;
}
