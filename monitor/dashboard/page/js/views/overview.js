// What is going on, and what is wrong right now.

import { lines, meter } from "../charts.js";
import { card, h, pill, show, table } from "../dom.js";
import { ago, bytes, number, percent } from "../format.js";

const ADVICE = {
  switch: "Check its connection to the southbound process; requests behind it wait until it is back.",
  partition: "Requests for it wait. Its owner is loading it, or waits for switches.",
  process: "It is restarted by itself. If it stays away, look at its log.",
  document: "Something stored in etcd cannot be read; the log says what.",
};

export class Overview {
  constructor(live) {
    this.live = live;
    this.element = h("div", { class: "view" });
  }

  update() {
    const { live } = this;
    show(this.element, h("h1", null, "Overview"), this.#figures(), this.#wrong(),
      live.role === "operator" && h("div", { class: "grid two" }, this.#charts()));
  }

  #figures() {
    const { ready, newest, topology, spaces } = this.live;
    const total = newest?.total;
    const cards = [
      ["Tasks per second", number(total?.done_per_s), "parts of requests that ended"],
      ["Waiting", number(total?.queued), "tasks at configurators"],
      ["Active", number(total?.active), "records, counted in each partition"],
      ["Flow entries", number(total?.entries), "on all switches"],
      ["Switches", ready ? `${ready.switches_up} / ${ready.switches}` : "–", "up"],
      ["Partitions", ready ? `${ready.partitions_ready} / ${ready.partitions}` : "–", "ready"],
      ["Hosts", number(topology?.hosts.length), `${spaces.size} ${spaces.size === 1 ? "space" : "spaces"}`],
      ["etcd", ready?.store ? percent(ready.store.size / ready.store.quota) : "–",
        ready?.store ? `${bytes(ready.store.size)} of ${bytes(ready.store.quota)}` : "of its quota"],
    ];
    return h("dl", { class: "figures" }, cards.map(([name, value, note]) =>
      h("div", { class: "figure" }, h("dt", null, name),
        h("dd", null, h("strong", null, value), h("small", null, note)))));
  }

  #wrong() {
    const { ready } = this.live;
    if (!ready) return card("What is wrong", h("p", { class: "empty" }, "The service does not answer."));
    const counts = ready.impaired_counts;
    if (!counts.total && !ready.reasons?.length) {
      return card("What is wrong", h("p", null, pill("good", "nothing"), " Everything works."));
    }
    const reasons = (ready.reasons ?? []).map((reason) => h("li", null, pill("bad", "not ready"), " ", reason));
    const rows = ready.impaired ?? [];
    const columns = [
      { title: "What", value: (row) => [pill("warn", row.kind), " ", row.id] },
      { title: "Since", value: (row) => ago(row.since) },
      { title: "Why", value: (row) => row.reason },
      { title: "What to do", value: (row) => ADVICE[row.kind] ?? "" },
    ];
    return card("What is wrong", h("ul", { class: "plain" }, reasons),
      table("Parts that cannot be used now", columns, rows,
        `${counts.total} parts cannot be used now; sign in as an operator to see them.`));
  }

  #charts() {
    const times = this.live.load.map((one) => one.at);
    const of = (name) => this.live.load.map((one) => one.total[name] ?? null);
    return [
      card("Tasks", lines("Tasks per second", "/s", times, [
        { name: "in", values: of("arrivals_per_s") }, { name: "done", values: of("done_per_s") }])),
      card("Latency by stage", lines("Mean time of a task or slice", "ms", times, [
        { name: "wait", values: of("wait_ms") }, { name: "decide", values: of("decide_ms") },
        { name: "push", values: of("push_ms") }])),
      card("Queue", lines("Tasks that wait or are in work", "tasks", times, [
        { name: "queued", values: of("queued") }])),
      card("Flow operations", lines("Acknowledged by switches", "/s", times, [
        { name: "operations", values: of("flow_ops_per_s") }])),
      card("Configurators", this.#configurators()),
    ];
  }

  #configurators() {
    const rows = this.live.newest?.configurators ?? [];
    const columns = [
      { title: "Configurator", value: (row) => row.id },
      { title: "Processor", value: (row) => meter(row.cpu, percent(row.cpu)) },
      { title: "Memory", number: true, value: (row) => bytes(row.memory) },
      { title: "Tasks/s", number: true, value: (row) => number(row.done_per_s) },
    ];
    return table("Load of the last second", columns, rows, "No configurator has reported yet.");
  }
}
