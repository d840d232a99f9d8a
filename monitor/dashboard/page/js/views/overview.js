// What is going on, and what is wrong right now.

import { get } from "../api.js";
import { lines, meter } from "../charts.js";
import { card, h, pill, show, table } from "../dom.js";
import { ago, bytes, clock, moment, number, percent, withUnit } from "../format.js";
import { poll } from "../polling.js";

const POLL = 2_000; // milliseconds between two looks at what applications have reported
const ADVICE = {
  switch: {
    text: "Check that the switch runs and reaches its southbound process. Events take other trees where there are any; requests of hosts behind it wait until it is back.",
    link: (id) => [`#/network/${encodeURIComponent(id)}`, "Show it in the network"],
  },
  partition: {
    text: "Requests in it wait. Its owner loads it, or waits for switches: repair those first. If it lasts, move the partition to another configurator.",
    link: (id) => [`#/event-space/${encodeURIComponent(id)}`, "Show it in the event space"],
  },
  process: {
    text: "It is restarted by itself, and others take over. If it stays away, its log says why.",
    link: () => ["#/workers", "Show the workers"],
  },
  etcd: {
    text: "etcd stores everything. Start it again, or make room: dzflow etcd compact, a larger quota, or shorter times to keep records.",
    link: () => ["#/settings", "Show the settings of etcd"],
  },
  ray: {
    text: "Workers run on, but are not restarted when they die. Restart the service's workers.",
    link: () => ["#/workers", "Show the workers"],
  },
  document: {
    text: "Something that etcd stores there cannot be read, and is ignored. The log says what; restore a backup, or delete the key.",
    link: () => ["#/settings", "Show versions and settings"],
  },
};

/** What to do about something that is wrong, and where to look at it. */
function advice({ kind, id }) {
  const found = ADVICE[kind === "process" && (id === "etcd" || id === "ray") ? id : kind];
  if (!found) return "";
  const [href, text] = found.link(id);
  return [found.text, " ", h("a", { href }, text)];
}

export class Overview {
  constructor(live) {
    this.live = live;
    this.element = h("div", { class: "view" });
    this.reported = []; // {at, process, counters}: sums that applications have reported to one process
    if (live.role === "operator") this.stop = poll(() => this.#readReports(), POLL);
  }

  close() {
    this.stop?.();
  }

  async #readReports() {
    try {
      const { items, process } = await get("reports");
      const counters = {};
      for (const item of items) {
        for (const [name, count] of Object.entries(item.counters)) counters[name] = (counters[name] ?? 0) + count;
      }
      // Each API process has sums of its own: a rate needs two of the same one.
      const before = this.reported.at(-1)?.process === process ? this.reported.slice(-14) : [];
      this.reported = [...before, { at: Date.now() / 1000, process, counters }];
      this.unread = "";
    } catch (error) {
      this.reported = [];
      this.unread = error.message;
    }
    this.live.dispatchEvent(new Event("change"));
  }

  /** Events per second by what applications have counted lately, and in all. */
  #events(name) {
    const first = this.reported[0], last = this.reported.at(-1);
    if (!last) return { total: null, rate: null };
    const total = last.counters[name] ?? 0;
    const seconds = last.at - first.at;
    return { total, rate: seconds ? Math.max(0, total - (first.counters[name] ?? 0)) / seconds : null };
  }

  update() {
    const { live } = this;
    const well = live.ready?.status === "ready";
    // What is wrong comes first, if something is.
    show(this.element, h("h1", null, "Overview"), !well && this.#wrong(), this.#figures(), well && this.#wrong(),
      live.role === "operator" && h("div", { class: "grid two" }, this.#charts()));
  }

  #figures() {
    const { ready, newest, topology, spaces } = this.live;
    const total = newest?.total;
    const cards = [
      ["Requests", withUnit(total?.done_per_s, "/s"), "that ended, counted in each partition"],
      ["Waiting", number(total?.queued), total?.queued ? `parts of requests; the oldest for ${withUnit(total.oldest_s, "s")}` : "parts of requests"],
      ["Active subscriptions", number(ready?.store?.active_subscriptions),
        ready?.store ? `of ${number(ready.store.records)} records, advertisements included` : "operators see them"],
      ["Flow entries", number(total?.entries), "on all switches"],
      ["Switches", ready ? `${ready.switches_up} / ${ready.switches}` : "–", "up"],
      ["Partitions", ready ? `${ready.partitions_ready} / ${ready.partitions}` : "–", "ready"],
      ...this.#eventFigures(),
      ["Hosts", number(topology?.hosts.length), `${spaces.size} ${spaces.size === 1 ? "space" : "spaces"}`],
      ["etcd", ready?.store ? percent(ready.store.size / ready.store.quota) : "–",
        ready?.store ? `${bytes(ready.store.size)} of ${bytes(ready.store.quota)}` : "of its quota"],
    ];
    return h("dl", { class: "figures" }, cards.map(([name, value, note]) =>
      h("div", { class: "figure" }, h("dt", null, name),
        h("dd", null, h("strong", null, value), h("small", null, note)))));
  }

  #eventFigures() {
    if (this.live.role !== "operator") return [];
    if (this.unread) return [["Events seen", "–", this.unread], ["Unwanted", "–", this.unread]];
    const received = this.#events("received"), unwanted = this.#events("unwanted");
    const share = received.total ? percent(unwanted.total / received.total) : "–";
    return [
      ["Events seen", withUnit(received.rate, "/s"), `${number(received.total)} reported by applications`],
      ["Unwanted", share, received.total ? `${number(unwanted.total)} events that no filter of the host wants` : "no application has reported yet"],
    ];
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
    return card("What is wrong", h("ul", { class: "plain" }, reasons),
      counts.total > rows.length && h("p", { class: "note" }, rows.length
        ? `The first ${number(rows.length)} of ${number(counts.total)} are shown.`
        : `${number(counts.total)} parts cannot be used now; sign in as an operator to see them.`),
      rows.length > 0 && h("ul", { class: "plain wrong scroll", tabindex: "0", "data-id": "wrong", "aria-label": "Parts that cannot be used now" }, rows.map((row) =>
        h("li", null,
          h("p", null, pill("warn", row.kind), " ", h("strong", null, row.id), " ",
            h("span", { class: "note", title: moment(row.since) }, `since ${clock(row.since)}, ${ago(row.since)}`)),
          h("p", null, row.reason), h("p", { class: "advice" }, advice(row))))));
  }

  #charts() {
    const times = this.live.load.map((one) => one.at);
    const of = (name) => this.live.load.map((one) => one.total[name] ?? null);
    return [
      card("Requests", lines("Parts of requests per second", "/s", times, [
        { name: "in", values: of("arrivals_per_s") }, { name: "done", values: of("done_per_s") }])),
      card("Latency by stage", lines("Mean time per part of a request (wait) or slice (decide, push)", "ms", times, [
        { name: "wait", values: of("wait_ms") }, { name: "decide", values: of("decide_ms") },
        { name: "push", values: of("push_ms") }])),
      card("Queue", lines("Parts of requests that wait or are in work", "parts", times, [
        { name: "queued", values: of("queued") }])),
      card("Flow operations", lines("Acknowledged by switches", "/s", times, [
        { name: "operations", values: of("flow_ops_per_s") }])),
      this.#configurators(),
    ];
  }

  #configurators() {
    const rows = this.live.newest?.configurators ?? [];
    const columns = [
      { title: "Configurator", value: (row) => row.id },
      { title: "Processor", value: (row) => meter(row.cpu, percent(row.cpu)) },
      { title: "Memory", number: true, value: (row) => bytes(row.memory) },
      { title: "Parts/s", number: true, value: (row) => number(row.done_per_s) },
    ];
    const found = card("Configurators", table("Load of the last second", columns, rows, "No configurator has reported yet."));
    found.classList.add("wide");
    return found;
  }
}
