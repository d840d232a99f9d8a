// A form for one event: a field for each attribute of a space, with its range beside it.

import { h, show } from "./dom.js";
import { rangeText } from "./filter_words.js";

const MOST_CHOICES = 200; // values of an enum that are offered as a list
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

export class EventForm {
  #attributes = [];
  #fields = new Map();

  constructor() {
    this.element = h("div", { class: "event-fields" });
  }

  /** Show the fields of these attributes; what was typed stays as long as they are the same. */
  offer(attributes) {
    if (JSON.stringify(attributes) === JSON.stringify(this.#attributes)) return false;
    this.#attributes = attributes;
    this.#fields = new Map(attributes.map((one) => [one.name, field(one)]));
    show(this.element, attributes.map((one, place) => {
      const input = this.#fields.get(one.name);
      input.setAttribute("aria-describedby", `range-${place}`);
      return h("div", { class: "event-field" }, h("label", null, h("span", null, one.name), input),
        h("small", { id: `range-${place}`, class: "note" }, `${one.type}: ${rangeText(one)}`));
    }));
    return true;
  }

  /** The event as it is typed; the service checks it. */
  get value() {
    return Object.fromEntries(this.#attributes.map((one) => [one.name, read(one, this.#fields.get(one.name).value)]));
  }

  /** Put a random value into each field. */
  randomise() {
    for (const one of this.#attributes) this.#fields.get(one.name).value = String(randomValue(one));
  }

  /** Mark the field that is wrong; null: none. */
  blame(name) {
    for (const [one, input] of this.#fields) input.setAttribute("aria-invalid", String(one === name));
  }
}

function field(attribute) {
  const { name, type, values } = attribute;
  const choices = type === "bool" ? ["false", "true"] : type === "enum" && values.length <= MOST_CHOICES ? values : null;
  if (choices) return h("select", { name }, choices.map((value) => h("option", { value }, value)));
  const numeric = type === "int" || type === "float";
  return h("input", {
    name, value: usual(attribute), autocomplete: "off", size: "12",
    ...(numeric ? { type: "number", min: attribute.min, max: attribute.max, step: type === "int" ? "1" : "any" } : {}),
  });
}

function usual({ type, min, max, values }) {
  if (type === "string") return "ACME";
  if (type === "enum") return values[0];
  if (type === "time") return instant(Math.min(Math.max(Date.now(), Date.parse(min)), Date.parse(max)));
  const middle = min + (max - min) / 2;
  return type === "int" ? Math.round(middle) : Number(middle.toPrecision(6));
}

function read({ type }, text) {
  if (type === "bool") return text === "true";
  if (type === "int" || type === "float") return text === "" ? null : Number(text);
  return text;
}

const instant = (milliseconds) => new Date(milliseconds).toISOString().replace(/\.\d+/, "");
const pick = (values) => values[Math.floor(Math.random() * values.length)];

function randomValue({ type, min, max, values, scale }) {
  if (type === "bool") return Math.random() < 0.5;
  if (type === "enum") return pick(values);
  if (type === "string") return Array.from({ length: 4 }, () => pick(LETTERS)).join("");
  const [low, high] = type === "time" ? [Date.parse(min), Date.parse(max)] : [min, max];
  const share = Math.random();
  const value = scale === "log" ? low + (high - low + 1) ** share - 1 : low + (high - low) * share;
  if (type === "time") return instant(value);
  return type === "int" ? Math.round(value) : Math.min(high, Math.max(low, Number(value.toPrecision(6))));
}
