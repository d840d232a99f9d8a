// Configurators and southbound processes: load over time, what happened to them, how many there are.

import { act, copyable, outcome } from "../actions.js";
import { get } from "../api.js";
import { lines } from "../charts.js";
import { card, h, pill, show, table } from "../dom.js";
import { ago, bytes, number, percent } from "../format.js";
import { poll } from "../polling.js";
import { historyTable, marksLegend, timeLine } from "../time_line.js";

const READ_EVERY = 1_000; // milliseconds
const LEVEL = { up: "good", starting: "idle", unreachable: "warn", down: "bad" };
const SPANS = [[300, "5 minutes"], [900, "15 minutes"], [3600, "1 hour"]];

export class Workers {
  constructor(live) {
    this.live = live;
    this.processes = null; // southbound processes, when they were read
    this.charts = h("div", { class: "grid two" });
    this.configurators = h("div");
    this.southbound = h("div");
    this.drawing = h("div", { class: "time" });
    this.told = h("div");
    this.problem = h("p", { class: "error", role: "status" });
    this.span = h("select", { onchange: () => this.#showHistory() }, SPANS.map(([seconds, text]) => h("option", { value: seconds }, text)));
    this.scales = [
      scale("configurators", "Configurators", "dzflow configurators scale"),
      scale("southbound", "Southbound processes", "dzflow southbound scale"),
    ];
    const history = card("What happened",
      h("p", { class: "tools" }, h("label", null, "Show the last ", this.span), copyable("GET", "history?since=-3600", undefined, "dzflow history --since -3600")),
      this.drawing, marksLegend(), this.told,
      h("p", { class: "note" }, "This API process tells what it has heard since it has started; the page keeps the last hour, and 1,000 events at most."));
    this.element = h("div", { class: "view" }, h("h1", null, "Workers"), this.problem, history, this.charts,
      this.configurators, this.scales[0].element, this.southbound, this.scales[1].element);
    this.stop = poll(() => this.#read(), READ_EVERY);
  }

  close() {
    this.stop();
  }

  update() {
    this.#showHistory();
    this.#showCharts();
    const newest = new Map((this.live.newest?.configurators ?? []).map((one) => [one.id, one]));
    const columns = [
      { title: "Configurator", value: (row) => row.id },
      { title: "State", value: stateOf },
      { title: "Restarts", value: (row) => this.#restarts(row.id) },
      { title: "Node", value: (row) => h("span", { title: row.node }, (row.node ?? "").slice(0, 12)) },
      { title: "Process", number: true, value: (row) => row.pid ?? "" },
      { title: "Partitions", number: true, value: (row) => number(row.partitions) },
      { title: "Queue", number: true, value: (row) => number(row.queued) },
      { title: "Tasks/s", number: true, value: (row) => number(newest.get(row.id)?.done_per_s) },
      { title: "Slices/s", number: true, value: (row) => number(newest.get(row.id)?.slices_per_s) },
      { title: "Processor", number: true, value: (row) => percent(newest.get(row.id)?.cpu) },
      { title: "Memory", number: true, value: (row) => bytes(newest.get(row.id)?.memory) },
    ];
    show(this.configurators, card("Configurators", table("All configurators", columns,
      [...this.live.configurators.values()], "No configurator is registered yet.")));
    this.#showSouthbound();
  }

  #showHistory() {
    const span = Number(this.span.value), since = Date.now() / 1000 - span;
    const events = this.live.history.filter((one) => one.at > since);
    const known = [...this.live.configurators.keys(), ...(this.processes ?? []).map((one) => one.id)];
    show(this.drawing, timeLine(this.live.history, known, span, Math.max(320, this.drawing.clientWidth || 1000)));
    show(this.told, historyTable("Events of the time line", events, "Nothing has happened in this time."));
  }

  #showCharts() {
    const { load } = this.live;
    const times = load.map((one) => one.at);
    const names = [...new Set(load.flatMap((one) => one.configurators.map((each) => each.id)))].sort().slice(0, 8);
    const found = load.map((one) => new Map(one.configurators.map((each) => [each.id, each])));
    const of = (value) => names.map((name) => ({ name, values: found.map((row) => {
      const one = row.get(name);
      return one ? value(one) ?? null : null;
    }) }));
    show(this.charts,
      card("Queues", lines("Tasks that wait or are in work", "tasks", times, of((one) => one.queued))),
      card("Processor", lines("Share of a core", "%", times, of((one) => 100 * one.cpu))),
      card("Slices", lines("Slices that ended", "/s", times, of((one) => one.slices_per_s))),
      card("Size of slices", lines("Tasks per slice", "tasks", times, of((one) => (one.slices_per_s ? one.done_per_s / one.slices_per_s : null)))),
      card("Time to decide", lines("Processor time of a decision, per slice", "ms", times, of((one) => one.decide_ms))),
      card("Time to push", lines("Until all switches have acknowledged, per slice", "ms", times, of((one) => one.push_ms))));
  }

  #restarts(id) {
    const found = this.live.history.filter((one) => one.action === "restarted" && one.workers[0] === id);
    return found.length ? `${found.length} in the last hour, the last ${ago(found.at(-1).at)}` : "none in the last hour";
  }

  #showSouthbound() {
    if (!this.processes) return show(this.southbound, h("p", { class: "empty" }, "Loading…"));
    const columns = [
      { title: "Process", value: (row) => row.id },
      { title: "State", value: stateOf },
      { title: "Restarts", value: (row) => this.#restarts(row.id) },
      { title: "OpenFlow", value: (row) => row.openflow ?? "" },
      { title: "Switches", number: true, value: (row) => number(row.switches) },
      { title: "Node", value: (row) => h("span", { title: row.node }, (row.node ?? "").slice(0, 12)) },
    ];
    show(this.southbound, card("Southbound processes", table("All southbound processes", columns,
      this.processes, "No southbound process is registered yet.")));
  }

  async #read() {
    try {
      const [configurators, southbound] = await Promise.all([get("configurators"), get("southbound")]);
      // The stream tells of configurators that change, but not of those that have left.
      this.live.configurators = new Map(configurators.items.map((one) => [one.id, one]));
      this.scales[0].set(configurators.wanted);
      this.scales[1].set(southbound.wanted);
      this.processes = southbound.items;
      show(this.problem);
      this.live.dispatchEvent(new Event("change"));
    } catch (error) {
      show(this.problem, `Workers cannot be read: ${error.message}`);
    }
  }
}

const stateOf = (row) => [pill(LEVEL[row.state], row.state), row.leaving && pill("warn", "leaving"), " ", row.reason ?? ""];
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
