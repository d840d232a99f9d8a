// A form for the schema of a space: rows of attributes, the index, and errors at the field that has them.

import { copyable, quoted } from "../actions.js";
import { call, SLOW } from "../api.js";
import { h, show } from "../dom.js";

const TYPES = ["float", "int", "enum", "string", "bool", "time"];
const RANGED = ["float", "int", "time"];
const NUMBERS = ["float", "int"];

export class SpaceForm {
  #next = 0; // numbers the rows, for labels

  /** `done` is called with the space as it was saved, or with null. */
  constructor(space, done) {
    this.space = space;
    this.done = done;
    this.rows = [];
    this.name = h("input", { name: "name", required: true, size: "24", value: space?.name, readonly: Boolean(space), "data-field": "name", autocomplete: "off" });
    this.kind = select("index.kind", ["fields", "zorder"], space?.index.kind ?? "fields");
    this.budget = h("input", { name: "budget", type: "number", min: "1", max: "1024", value: space?.index.budget ?? 8, "data-field": "index.budget" });
    this.shapes = h("input", { name: "shapes", type: "number", min: "1", max: "4096", value: space?.index.shapes ?? 64, "data-field": "index.shapes" });
    this.list = h("div", { class: "attributes" });
    this.said = h("p", { class: "outcome", role: "alert" });
    this.copies = h("span");
    this.save = h("button", { type: "submit" }, space ? "Change the schema" : "Make the space");
    this.element = h("form", { class: "card space-form", novalidate: true, oninput: () => this.#changed(),
      onsubmit: (event) => { event.preventDefault(); this.#send(); } },
    h("h2", null, space ? `Change ${space.name}` : "New space"),
    space && h("p", { class: "note" }, "The new schema is installed beside the old one, and publishers switch over; nothing is interrupted. Filters that no longer fit are refused by name."),
    field("Name", this.name, "letters, digits, _ . -"),
    h("h3", null, "Attributes"), this.list,
    h("button", { type: "button", class: "quiet", onclick: () => { this.#add({ type: "float" }).name.focus(); this.#changed(); } }, "Add an attribute"),
    h("h3", null, "Index"),
    h("div", { class: "fields" },
      field("Kind", this.kind, "fields: any attribute by itself"),
      field("Budget", this.budget, "regions per filter, at most"),
      field("Shapes", this.shapes, "in the dictionary, at most")),
    this.said,
    h("div", { class: "tools" }, this.save, h("button", { type: "button", class: "quiet", onclick: () => this.done(null) }, "Cancel"), this.copies));
    for (const attribute of space?.attributes ?? [{ type: "float" }]) this.#add(attribute);
    this.#changed();
  }

  /** Put the focus where typing begins, once the form is on the page. */
  start() {
    (this.space ? this.rows[0]?.name ?? this.save : this.name).focus();
    this.element.scrollIntoView({ block: "nearest" });
  }

  #add(attribute) {
    const number = ++this.#next;
    const input = (member, more) => h("input", { name: `${member}-${number}`, "data-member": member, autocomplete: "off", ...more });
    const row = {
      name: input("name", { size: "14", value: attribute.name }),
      type: select("", TYPES, attribute.type, "type"),
      min: input("min", { size: "8", value: attribute.min }),
      max: input("max", { size: "8", value: attribute.max }),
      values: input("values", { size: "24", value: attribute.values?.join(", "), placeholder: "ACME, BOLT" }),
      scale: select("", ["linear", "log"], attribute.scale ?? "linear", "scale"),
      bits: input("bits", { type: "number", min: "1", max: "96", value: attribute.bits, placeholder: "auto" }),
    };
    const hint = { min: "for time: ISO 8601", values: "separated by commas", bits: "empty: by itself" };
    row.fields = Object.fromEntries(["name", "type", "min", "max", "values", "scale", "bits"].map((member) =>
      [member, field(member[0].toUpperCase() + member.slice(1), row[member], hint[member])]));
    row.element = h("fieldset", null, h("legend", null), Object.values(row.fields),
      h("button", { type: "button", class: "quiet", onclick: () => {
        this.rows.splice(this.rows.indexOf(row), 1);
        row.element.remove();
        this.#changed();
      } }, "Remove"));
    this.rows.push(row);
    this.list.append(row.element);
    return row;
  }

  /** Show the fields that fit the types, forget errors, and offer the same as a command. */
  #changed() {
    this.rows.forEach((row, place) => {
      const type = row.type.value;
      row.element.querySelector("legend").textContent = `Attribute ${place + 1}`;
      row.fields.min.hidden = row.fields.max.hidden = !RANGED.includes(type);
      row.fields.values.hidden = type !== "enum";
      row.fields.scale.hidden = !NUMBERS.includes(type);
    });
    this.shapes.disabled = this.kind.value !== "fields";
    this.#clear();
    const name = this.name.value.trim() || "NAME", schema = this.#schema();
    show(this.copies, copyable("PUT", this.#path(name), schema, `echo ${quoted(JSON.stringify(schema))} | dzflow space put ${quoted(name)} -`));
  }

  #path(name) {
    return `spaces/${encodeURIComponent(name)}`;
  }

  #schema() {
    const attributes = this.rows.map((row) => {
      const type = row.type.value;
      const made = { name: row.name.value.trim(), type };
      if (RANGED.includes(type)) {
        for (const member of ["min", "max"]) if (row[member].value.trim()) made[member] = value(row[member].value.trim(), type);
      }
      if (type === "enum") made.values = row.values.value.split(",").map((one) => one.trim()).filter(Boolean);
      if (NUMBERS.includes(type) && row.scale.value !== "linear") made.scale = row.scale.value;
      if (row.bits.value) made.bits = Number(row.bits.value);
      return made;
    });
    const index = { kind: this.kind.value };
    if (this.budget.value) index.budget = Number(this.budget.value);
    if (this.shapes.value && this.kind.value === "fields") index.shapes = Number(this.shapes.value);
    return { attributes, index };
  }

  async #send() {
    const name = this.name.value.trim();
    this.#clear();
    if (!name) return this.#refused("name", "A space needs a name.");
    this.save.disabled = true;
    this.said.className = "outcome";
    show(this.said, "The space is being installed on all switches…");
    try {
      this.done(await call("PUT", this.#path(name), this.#schema(), { limit: SLOW }));
    } catch (error) {
      this.#refused(error.body?.field ?? "", error.message);
    } finally {
      this.save.disabled = false;
    }
  }

  /** Show an error at the field that the service names, such as `attributes[1].min`. */
  #refused(path, text) {
    text = text.replace(/^at index \d+: /, ""); // the field itself shows which one it is
    this.said.className = "outcome error";
    show(this.said, text);
    const [, place, member] = /^attributes\[(\d+)\](?:\.(\w+))?/.exec(path) ?? [];
    const row = this.rows[place];
    const input = row ? (row[member] ?? row.name) : [...this.element.querySelectorAll("[data-field]")].find((one) => one.dataset.field === path);
    if (!input) return;
    input.setAttribute("aria-invalid", "true");
    const note = input.closest("label").querySelector("small");
    note.className = "error";
    note.textContent = text;
    input.focus();
  }

  #clear() {
    show(this.said);
    for (const input of this.element.querySelectorAll("[aria-invalid]")) {
      input.removeAttribute("aria-invalid");
      const note = input.closest("label").querySelector("small");
      note.className = "";
      note.textContent = note.dataset.hint ?? "";
    }
  }
}

const field = (title, input, hint = "") =>
  h("label", { class: "field" }, h("span", null, title), input, h("small", { "data-hint": hint }, hint));

const select = (path, values, chosen, member) =>
  h("select", { "data-field": path || null, "data-member": member },
    values.map((one) => h("option", { value: one, selected: one === chosen }, one)));

/** A bound as the service takes it: a number, or for times a text. */
function value(text, type) {
  const found = Number(text);
  return type === "time" || Number.isNaN(found) ? text : found;
}
