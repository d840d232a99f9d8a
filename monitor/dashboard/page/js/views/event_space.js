// Partitions as a map: sized by load, coloured by owner; pick one to move it.

import { act, copyable, outcome } from "../actions.js";
import { get } from "../api.js";
import { treemap } from "../charts.js";
import { card, h, pill, s, show, table } from "../dom.js";
import { clock, number, percent } from "../format.js";

const WIDTH = 1000, HEIGHT = 360;
const READ_EVERY = 2_000; // milliseconds

export class EventSpace {
  constructor(live, picked) {
    this.live = live;
    this.picked = picked;
    this.partitions = [];
    this.moves = [];
    this.map = h("div", { class: "drawing" });
    this.move = h("div");
    this.plan = h("div");
    this.rows = h("div");
    this.element = h("div", { class: "view" }, h("h1", null, "Event space"),
      h("p", { class: "note" }, "The area of a partition is its share of the load, its colour the configurator that owns it."),
      this.map, this.move, this.plan, this.rows);
    this.#read();
    this.timer = setInterval(() => this.#read(), READ_EVERY);
    this.#offerMove();
  }

  close() {
    clearInterval(this.timer);
  }

  update() {
    const load = new Map((this.live.newest?.partitions ?? []).map((one) => [one.id, one]));
    const owners = [...new Set(this.partitions.map((one) => one.configurator))].sort();
    show(this.map, this.#draw(load, owners));
    show(this.plan, [...this.live.plans.values()].map(planCard));
    const columns = [
      { title: "Partition", value: (row) => h("a", { href: `#/event-space/${encodeURIComponent(row.id)}` }, row.id) },
      { title: "Space", value: (row) => row.space },
      { title: "Owner", value: (row) => [h("i", { class: `key c${owners.indexOf(row.configurator) % 8}` }), row.configurator || "nobody"] },
      { title: "State", value: (row) => pill(row.state === "ready" ? "good" : "warn", row.reason ?? row.state) },
      { title: "Load", number: true, value: (row) => percent(load.get(row.id)?.utilisation) },
      { title: "Queue", number: true, value: (row) => number(row.queued) },
      { title: "Tasks/s", number: true, value: (row) => number(load.get(row.id)?.done_per_s) },
      { title: "Active", number: true, value: (row) => number(row.active) },
      { title: "Entries", number: true, value: (row) => number(row.entries) },
    ];
    show(this.rows, card("Partitions", table("All partitions", columns, this.partitions,
      "There are no partitions yet: make a space with PUT /spaces/{name}, or dzflow space put.")));
  }

  #draw(load, owners) {
    if (!this.partitions.length) return h("p", { class: "empty" }, "There are no partitions yet.");
    const size = (one) => 0.02 + (load.get(one.id)?.utilisation ?? 0) + 1e-5 * one.active;
    const ordered = [...this.partitions].sort((a, b) => size(b) - size(a));
    const cells = treemap(ordered, size, 0, 0, WIDTH, HEIGHT).map(({ item, x, y, width, height }) => {
      const busy = percent(load.get(item.id)?.utilisation);
      const title = `${item.id} of ${item.space}: ${item.configurator || "nobody"}, load ${busy}, ${item.active} active`;
      const pick = () => { location.hash = `#/event-space/${encodeURIComponent(item.id)}`; };
      return s("g", {
        class: `cell ${item.id === this.picked ? "picked" : ""}`, tabindex: "0", role: "button", "data-id": item.id, "aria-label": title, onclick: pick,
        onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); } },
      }, s("title", null, title),
      s("rect", { class: `owner c${owners.indexOf(item.configurator) % 8}`, x: x + 1, y: y + 1, width: Math.max(0, width - 2), height: Math.max(0, height - 2), rx: 4 }),
      width > 90 && height > 36 && [
        s("text", { x: x + 10, y: y + 20, class: "strong" }, item.leaf.slice(0, Math.floor(width / 9)) || item.id),
        s("text", { x: x + 10, y: y + 34 }, busy)]);
    });
    return s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "space", role: "group", "aria-label": `${this.partitions.length} partitions by load` }, cells);
  }

  async #read() {
    try {
      const { items, moves } = await get("partitions");
      this.partitions = items;
      this.moves = moves;
      this.live.dispatchEvent(new Event("change"));
      this.#offerMove();
    } catch (error) {
      show(this.rows, h("p", { class: "error" }, error.message));
    }
  }

  #offerMove() {
    const one = this.partitions.find((each) => each.id === this.picked);
    if (!one) return show(this.move);
    const move = this.moves.find((each) => each.partition === one.id);
    if (this.offered === one.id + one.configurator) {
      show(this.moving, move ? `Moving to ${move.target}: ${move.phase}, since ${clock(move.began)}.` : "");
      return;
    }
    this.offered = one.id + one.configurator;
    const targets = [...this.live.configurators.values()].filter((each) => each.id !== one.configurator && !each.leaving);
    const choice = h("select", null, targets.map((each) => h("option", { value: each.id }, each.id)));
    const path = `partitions/${encodeURIComponent(one.id)}/migrate`;
    const where = outcome();
    const copies = h("span");
    const offerCopies = () => show(copies, copyable("POST", path, { to: choice.value }, `dzflow partitions migrate ${one.id} --to ${choice.value}`));
    choice.addEventListener("change", offerCopies);
    offerCopies();
    this.moving = h("p", { class: "note" });
    show(this.move, card(`Partition ${one.id}`,
      h("p", null, `Of space ${one.space}, owned by ${one.configurator || "nobody"}, epoch ${one.epoch}.`),
      targets.length
        ? h("p", { class: "tools" }, h("label", null, "Move to ", choice),
          h("button", { type: "button", onclick: async () => { if (await act(where, "Move", "POST", path, { to: choice.value })) this.#read(); } }, "Move"), copies)
        : h("p", { class: "note" }, "There is no other configurator to move it to."),
      this.moving, where));
  }
}

function planCard(plan) {
  const done = plan.steps.filter((step) => step.state === "done").length;
  const state = plan.running ? pill("warn", plan.phase) : pill("idle", plan.phase);
  return card(`Plan for space ${plan.space}`,
    h("p", null, state, ` ${done} of ${plan.steps.length} steps, begun at ${clock(plan.began)}. ${plan.text} ${plan.waiting}`),
    h("ul", null, plan.reasons.map((reason) => h("li", null, reason))));
}
