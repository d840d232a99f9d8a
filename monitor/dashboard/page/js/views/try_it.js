// Type a filter, see what it would do, then subscribe.

import { act, copyable, outcome, quoted } from "../actions.js";
import { call } from "../api.js";
import { card, h, pill, show, table } from "../dom.js";
import { number, percent } from "../format.js";

const WAIT = 300; // milliseconds without typing before the filter is explained

export class TryIt {
  constructor(live) {
    this.live = live;
    this.space = h("select", { name: "space", onchange: () => this.#later() });
    this.host = h("select", { name: "host", onchange: () => this.#later() });
    this.words = h("datalist", { id: "words" });
    this.filter = h("input", { name: "filter", size: "50", list: "words", autocomplete: "off", spellcheck: "false",
      placeholder: 'price >= 420 and symbol == "ACME"', oninput: () => this.#later(), "aria-describedby": "verdict" });
    this.verdict = h("div", { id: "verdict" });
    this.where = outcome();
    this.copies = h("span");
    const form = h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); this.#subscribe(); } },
      h("label", null, "Space ", this.space), h("label", null, "Host ", this.host),
      h("label", { class: "wide" }, "Filter ", this.filter), h("button", { type: "submit" }, "Subscribe"), this.copies);
    this.element = h("div", { class: "view" }, h("h1", null, "Try it"), form, this.words, this.where, this.verdict);
  }

  close() {
    clearTimeout(this.timer);
  }

  update() {
    offer(this.space, [...this.live.spaces.keys()].sort());
    offer(this.host, (this.live.topology?.hosts ?? []).map((host) => host.id));
    const space = this.live.spaces.get(this.space.value);
    const names = (space?.attributes ?? []).map((attribute) => `${attribute.name} ${attribute.type === "enum" || attribute.type === "string" ? '== "' : ">= "}`);
    if (names.join() !== this.offered) {
      this.offered = names.join();
      show(this.words, names.map((value) => h("option", { value })));
      this.#later();
    }
  }

  get #body() {
    return { host: this.host.value, space: this.space.value, filter: this.filter.value.trim() || {} };
  }

  #later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#explain(), WAIT);
  }

  async #explain() {
    const body = this.#body;
    if (!body.space) {
      return show(this.verdict, h("p", { class: "empty" }, "There is no space yet: make one with dzflow space put."));
    }
    show(this.copies, copyable("POST", "subscribe", body, `dzflow subscribe --host ${body.host} --space ${body.space} --filter ${quoted(this.filter.value)}`));
    try {
      const found = await call("POST", "explain", body);
      this.filter.setAttribute("aria-invalid", "false");
      show(this.verdict, explained(found));
    } catch (error) {
      this.filter.setAttribute("aria-invalid", "true");
      show(this.verdict, h("p", { class: "error" }, error.message));
    }
  }

  async #subscribe() {
    const record = await act(this.where, "Subscribe", "POST", "subscribe", this.#body);
    if (record) show(this.where, "Subscribed: ", h("a", { href: `#/requests/${encodeURIComponent(record.id)}` }, record.id));
  }
}

function offer(select, values) {
  if ([...select.options].map((option) => option.value).join() === values.join()) return;
  const before = select.value;
  show(select, values.map((value) => h("option", { value }, value)));
  if (values.includes(before)) select.value = before;
}

function explained(found) {
  const level = found.false_share < 0.2 ? "good" : found.false_share < 0.6 ? "warn" : "bad";
  const flows = Map.groupBy(found.flows, (flow) => flow.switch);
  const columns = [
    { title: "Switch", value: ([id]) => h("a", { href: `#/network/${encodeURIComponent(id)}` }, id) },
    { title: "Adds", number: true, value: ([, all]) => all.filter((flow) => flow.change === "add").length },
    { title: "Changes", number: true, value: ([, all]) => all.filter((flow) => flow.change === "modify").length },
    { title: "Deletes", number: true, value: ([, all]) => all.filter((flow) => flow.change === "delete").length },
  ];
  return [
    card("What the switches would let through",
      h("p", null, pill(level, `${percent(found.false_share)} unwanted`), ` ${number(found.regions.length)} regions in ${number(found.partitions.length)} partitions`),
      h("ul", { class: "cells" }, found.cells.map((cell) => h("li", null, h("code", null, cell))))),
    card("Flow operations", found.note && h("p", { class: "note" }, found.note),
      table("Switches that would change", columns, [...flows], "No switch would change: nobody advertises such events yet, or the entries are there already.")),
  ];
}
