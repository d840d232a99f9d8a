// One host: what it wants, what it offers, and what its switch delivers to it.

import { copyable } from "./actions.js";
import { get, records } from "./api.js";
import { card, h, pill, show, table } from "./dom.js";
import { problemText } from "./explaining.js";
import { bytes, clock, count, filterText, number, percent } from "./format.js";
import { poll } from "./polling.js";
import { regionOf } from "./switch_detail.js";

const MOST_ROWS = 200;
const MOST_READ = 1000; // records of a kind
const REPORTS_EVERY = 5_000; // milliseconds; applications report every ten seconds

export class HostDetail {
  constructor(live, id) {
    this.live = live;
    this.id = id;
    this.state = h("p");
    this.body = h("div", null, h("p", { class: "empty" }, "Loading its records…"));
    this.events = h("div", { "aria-live": "off" });
    const foreign = live.host && live.host !== id;
    if (foreign) {
      this.element = card(`Host ${id}`, this.state, h("p", { class: "note" },
        `Your token is for host ${live.host}: what ${id} wants and gets is for operators, and for itself.`));
      return;
    }
    const path = `subscriptions?host=${encodeURIComponent(id)}`;
    this.element = card(`Host ${id}`, this.state,
      h("p", { class: "tools" },
        h("button", { type: "button", class: "quiet", onclick: () => this.#read() }, "Read again"),
        copyable("GET", path, undefined, `dzflow subscriptions --host ${id}`)),
      h("h3", null, "Events that it sees"), this.events, this.body);
    this.#read();
    this.close = poll(() => this.#readReports(), REPORTS_EVERY);
  }

  get #host() {
    return this.live.topology?.hosts.find((one) => one.id === this.id);
  }

  update() {
    const host = this.#host;
    const key = JSON.stringify(host);
    if (!host || key === this.shown) return;
    this.shown = key;
    show(this.state, `At port ${host.port} of switch `,
      h("a", { href: `#/network/${encodeURIComponent(host.switch)}` }, host.switch), ". ",
      host.unreachable ? pill("bad", host.unreachable) : pill("good", "reachable"));
  }

  async #read() {
    const query = `?host=${encodeURIComponent(this.id)}`;
    try {
      const [wants, offers] = await Promise.all([records(`subscriptions${query}`, MOST_READ), records(`advertisements${query}`, MOST_READ)]);
      const gets = await this.#delivered();
      show(this.body,
        table(`Wants: ${counted(wants, "subscription")}`, RECORDS, wants.slice(0, MOST_ROWS), "It has no subscriptions."),
        table(`Offers: ${counted(offers, "advertisement")}`, RECORDS, offers.slice(0, MOST_ROWS), "It has no advertisements."),
        Array.isArray(gets)
          ? table(`Gets: ${number(gets.length)} entries of its switch lead to it`, DELIVERED, gets.slice(0, MOST_ROWS),
            "Nothing is delivered to it: nobody offers what it wants, or it wants nothing.")
          : h("p", { class: "note" }, gets));
    } catch (error) {
      show(this.body, h("p", { class: "error" }, problemText(error)));
    }
  }

  /** What its applications have counted: how much of what the switches deliver is unwanted. */
  async #readReports() {
    const path = `reports?host=${encodeURIComponent(this.id)}`;
    try {
      const { items, last } = await get(path);
      const key = JSON.stringify([items, last]);
      if (key === this.reported) return;
      this.reported = key;
      show(this.events,
        h("p", { class: "note" }, last === null
          ? "No application on it has reported to this API process. Those that use the SDK report every ten seconds in which they see or publish events. "
          : `As its applications have counted and reported to this API process, the last time at ${clock(last)}. `,
        copyable("GET", path)),
        last !== null && table("Events by space", REPORTED, items, "Its applications have seen and published no event."));
    } catch (error) {
      this.reported = null;
      show(this.events, h("p", { class: "error" }, problemText(error)));
    }
  }

  /** The entries of its switch that lead to it, or why they are not known. */
  async #delivered() {
    if (this.live.role !== "operator") return "An operator's token shows what is delivered to it.";
    try {
      const { items } = await get(`switches/${encodeURIComponent(this.#host.switch)}/flows?source=dp`);
      return items.filter((row) => row.legs.includes(this.id));
    } catch (error) {
      return `What is delivered to it is not known: ${error.message}`;
    }
  }
}

const counted = (found, word) => (found.length >= MOST_READ ? `${number(found.length)} or more ${word}s` : count(found.length, word));

const RECORDS = [
  { title: "Id", value: (row) => h("a", { class: "nowrap", href: `#/requests/${encodeURIComponent(row.id)}` }, row.id) },
  { title: "Space", value: (row) => row.space },
  { title: "Filter", value: (row) => h("code", null, filterText(row.filter)) },
  { title: "State", value: (row) => pill(row.state === "active" ? "good" : "warn", row.state) },
  { title: "Regions", number: true, value: (row) => number(row.regions.length) },
];

const counter = (title, name) => ({ title, number: true, value: ({ counters }) => number(counters[name] ?? 0) });

const REPORTED = [
  { title: "Space", value: (row) => row.space },
  counter("Published", "published"),
  counter("Received", "received"),
  counter("Delivered", "delivered"),
  counter("Unwanted", "unwanted"),
  { title: "Unwanted, share", number: true, value: ({ counters }) =>
    (counters.received ? percent((counters.unwanted ?? 0) / counters.received) : "–") },
];

const DELIVERED = [
  { title: "Space", value: (row) => row.space ?? "" },
  { title: "Events", value: (row) => h("code", null, regionOf(row)) },
  { title: "Packets", number: true, value: (row) => number(row.packets) },
  { title: "Bytes", number: true, value: (row) => bytes(row.bytes) },
  { title: "Partition", value: (row) => row.partition ?? "" },
];
