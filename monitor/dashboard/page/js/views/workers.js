// Configurators and southbound processes: load over time, states, and how many there are.

import { act, copyable, outcome } from "../actions.js";
import { get } from "../api.js";
import { lines } from "../charts.js";
import { card, h, pill, show, table } from "../dom.js";
import { bytes, number, percent } from "../format.js";

const READ_EVERY = 2_000; // milliseconds
const LEVEL = { up: "good", starting: "idle", unreachable: "warn", down: "bad" };

export class Workers {
  constructor(live) {
    this.live = live;
    this.charts = h("div", { class: "grid two" });
    this.configurators = h("div");
    this.southbound = h("div");
    this.scales = [
      scale("configurators", "Configurators", "dzflow configurators scale"),
      scale("southbound", "Southbound processes", "dzflow southbound scale"),
    ];
    this.element = h("div", { class: "view" }, h("h1", null, "Workers"), this.charts,
      this.configurators, this.scales[0].element, this.southbound, this.scales[1].element);
    this.#read();
    this.timer = setInterval(() => this.#read(), READ_EVERY);
  }

  close() {
    clearInterval(this.timer);
  }

  update() {
    const { load } = this.live;
    const times = load.map((one) => one.at);
    const names = [...new Set(load.flatMap((one) => one.configurators.map((each) => each.id)))].sort().slice(0, 8);
    const found = load.map((one) => new Map(one.configurators.map((each) => [each.id, each])));
    const of = (field, scale = 1) => names.map((name) =>
      ({ name, values: found.map((row) => { const value = row.get(name)?.[field]; return value === undefined || value === null ? null : value * scale; }) }));
    show(this.charts,
      card("Queues", lines("Tasks that wait or are in work", "tasks", times, of("queued"))),
      card("Processor", lines("Share of a core", "%", times, of("cpu", 100))));
    const load1 = new Map((this.live.newest?.configurators ?? []).map((one) => [one.id, one]));
    const columns = [
      { title: "Configurator", value: (row) => row.id },
      { title: "State", value: (row) => [pill(LEVEL[row.state], row.state), row.leaving && pill("warn", "leaving"), " ", row.reason ?? ""] },
      { title: "Node", value: (row) => h("span", { title: row.node }, (row.node ?? "").slice(0, 12)) },
      { title: "Process", number: true, value: (row) => row.pid ?? "" },
      { title: "Partitions", number: true, value: (row) => number(row.partitions) },
      { title: "Queue", number: true, value: (row) => number(row.queued) },
      { title: "Tasks/s", number: true, value: (row) => number(load1.get(row.id)?.done_per_s) },
      { title: "Processor", number: true, value: (row) => percent(load1.get(row.id)?.cpu) },
      { title: "Memory", number: true, value: (row) => bytes(load1.get(row.id)?.memory) },
    ];
    show(this.configurators, card("Configurators", table("All configurators", columns,
      [...this.live.configurators.values()], "No configurator is registered yet.")));
  }

  async #read() {
    try {
      const [configurators, southbound] = await Promise.all([get("configurators"), get("southbound")]);
      // The stream tells of configurators that come and change, not of those that have left.
      this.live.configurators = new Map(configurators.items.map((one) => [one.id, one]));
      this.scales[0].set(configurators.wanted);
      this.scales[1].set(southbound.wanted);
      const columns = [
        { title: "Process", value: (row) => row.id },
        { title: "State", value: (row) => [pill(LEVEL[row.state], row.state), row.leaving && pill("warn", "leaving"), " ", row.reason ?? ""] },
        { title: "OpenFlow", value: (row) => row.openflow ?? "" },
        { title: "Switches", number: true, value: (row) => number(row.switches) },
        { title: "Node", value: (row) => h("span", { title: row.node }, (row.node ?? "").slice(0, 12)) },
      ];
      show(this.southbound, card("Southbound processes", table("All southbound processes", columns,
        southbound.items, "No southbound process is registered yet.")));
    } catch (error) {
      show(this.southbound, h("p", { class: "error" }, error.message));
    }
  }
}

/** A form that sets how many workers of a kind there should be. */
function scale(path, title, command) {
  const input = h("input", { type: "number", min: "1", max: "64", value: "1", "aria-label": `How many: ${title}` });
  const where = outcome();
  const copies = h("span");
  const offer = () => show(copies, copyable("POST", path, { count: Number(input.value) }, `${command} ${input.value}`));
  input.addEventListener("input", offer);
  offer();
  let known = 0;
  const form = h("form", { class: "tools", onsubmit: (event) => {
    event.preventDefault();
    act(where, `Scale to ${input.value}`, "POST", path, { count: Number(input.value) });
  } }, h("label", null, `${title} wanted `, input), h("button", { type: "submit" }, "Scale"), copies);
  return {
    element: h("div", null, form, where),
    set(wanted) {
      if (wanted === known) return;
      known = wanted;
      input.value = wanted;
      offer();
    },
  };
}
