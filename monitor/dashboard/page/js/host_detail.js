// One host: what it wants, what it offers, and what its switch delivers to it.

import { copyable } from "./actions.js";
import { get, records } from "./api.js";
import { card, h, pill, show, table } from "./dom.js";
import { problemText } from "./explaining.js";
import { bytes, filterText, number } from "./format.js";
import { regionOf } from "./switch_detail.js";

const MOST_ROWS = 200;
const MOST_READ = 1000; // records of a kind

export class HostDetail {
  constructor(live, id) {
    this.live = live;
    this.id = id;
    this.state = h("p");
    this.body = h("div", null, h("p", { class: "empty" }, "Loading its records…"));
    const path = `subscriptions?host=${encodeURIComponent(id)}`;
    this.element = card(`Host ${id}`, this.state,
      h("p", { class: "tools" },
        h("button", { type: "button", class: "quiet", onclick: () => this.#read() }, "Read again"),
        copyable("GET", path, undefined, `dzflow subscriptions --host ${id}`)),
      this.body);
    this.#read();
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
        table(`Wants: ${counted(wants)} subscriptions`, RECORDS, wants.slice(0, MOST_ROWS), "It has no subscriptions."),
        table(`Offers: ${counted(offers)} advertisements`, RECORDS, offers.slice(0, MOST_ROWS), "It has no advertisements."),
        Array.isArray(gets)
          ? table(`Gets: ${number(gets.length)} entries of its switch lead to it`, DELIVERED, gets.slice(0, MOST_ROWS),
            "Nothing is delivered to it: nobody offers what it wants, or it wants nothing.")
          : h("p", { class: "note" }, gets));
    } catch (error) {
      show(this.body, h("p", { class: "error" }, problemText(error)));
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

const counted = (found) => `${number(found.length)}${found.length >= MOST_READ ? " or more" : ""}`;

const RECORDS = [
  { title: "Id", value: (row) => h("a", { href: `#/requests/${encodeURIComponent(row.id)}` }, row.id) },
  { title: "Space", value: (row) => row.space },
  { title: "Filter", value: (row) => h("code", null, filterText(row.filter)) },
  { title: "State", value: (row) => pill(row.state === "active" ? "good" : "warn", row.state) },
  { title: "Regions", number: true, value: (row) => number(row.regions.length) },
];

const DELIVERED = [
  { title: "Space", value: (row) => row.space ?? "" },
  { title: "Events", value: (row) => h("code", null, regionOf(row)) },
  { title: "Packets", number: true, value: (row) => number(row.packets) },
  { title: "Bytes", number: true, value: (row) => bytes(row.bytes) },
  { title: "Partition", value: (row) => row.partition ?? "" },
];
