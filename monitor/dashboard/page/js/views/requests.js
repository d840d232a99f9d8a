// Requests: a live log, a search, and one request's way through all stages.

import { copyable } from "../actions.js";
import { changes, get } from "../api.js";
import { card, h, pill, show, table } from "../dom.js";
import { clock, filterText, moment, number, withUnit } from "../format.js";

const KEPT = 100; // lines of the log
const MOST = 20; // changes per second that the service sends; it counts the others
const READ_AGAIN = 2_000; // milliseconds, for a request that is not done
const DRAW_EVERY = 500; // milliseconds, at most
const RETRY = 2_000; // milliseconds
const STAGES = [["indexed_ms", "indexed"], ["journaled_ms", "written"], ["queued_ms", "queued"],
  ["decided_ms", "decided"], ["pushed_ms", "pushed"], ["committed_ms", "committed"]];
const LEVEL = { active: "good", pending: "warn", removing: "warn", removed: "idle", failed: "bad" };

export class Requests {
  constructor(live, picked) {
    this.live = live;
    this.picked = picked;
    this.log = [];
    this.seen = 0;
    this.skipped = 0;
    this.problem = "";
    this.record = null; // the one that is picked, when it was read
    this.unread = ""; // why it was not
    this.lines = h("div");
    this.found = h("div");
    this.one = h("div");
    this.stop = new AbortController();
    this.element = h("div", { class: "view" }, h("h1", null, "Requests"), this.#search(), this.one, this.found, this.lines);
    this.#follow();
    if (picked) this.#readOne(picked);
  }

  close() {
    this.stop.abort();
    clearTimeout(this.timer);
  }

  update() {
    this.#drawLog();
    this.#drawOne();
  }

  /** Have the view updated soon, once for all that changes until then. */
  #changed() {
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.live.dispatchEvent(new Event("change"));
    }, DRAW_EVERY);
  }

  #search() {
    const field = (name, title, more) => h("label", null, `${title} `, h("input", { name, ...more }));
    const form = h("form", { class: "tools", role: "search", onsubmit: (event) => { event.preventDefault(); this.#find(new FormData(form)); } },
      field("id", "Id", { size: "20" }),
      field("host", "Host", { size: "8", value: this.live.host || null, readonly: Boolean(this.live.host) }), field("space", "Space", { size: "10" }),
      h("label", null, "State ", h("select", { name: "state" }, ["", "pending", "active", "removing", "removed", "failed"].map((state) =>
        h("option", { value: state }, state || "any")))),
      h("button", { type: "submit" }, "Search"));
    return form;
  }

  async #find(data) {
    if (data.get("id")) {
      location.hash = `#/requests/${encodeURIComponent(data.get("id").trim())}`;
      return;
    }
    const query = new URLSearchParams([...data].filter(([, value]) => value));
    query.set("limit", "100");
    try {
      const pages = await Promise.all(["subscriptions", "advertisements"].map((kind) => get(`${kind}?${query}`)));
      const items = pages.flatMap((page) => page.items);
      show(this.found, card("Found", rows("Records that match", items, "Nothing matches.")),
        pages.some((page) => page.next) && h("p", { class: "note" }, "There are more; narrow the search."));
    } catch (error) {
      show(this.found, h("p", { class: "error" }, error.message));
    }
  }

  /** Read a request, again and again until it is done: its change may be one that is skipped. */
  async #readOne(id) {
    while (!this.stop.signal.aborted) {
      try {
        this.record = await get(`requests/${encodeURIComponent(id)}`);
        this.unread = "";
      } catch (error) {
        this.unread = error.message;
        if (error.status === 404 || error.status === 403) return this.#changed();
      }
      this.#changed();
      if (this.record && !isOpen(this.record)) return;
      await new Promise((wake) => setTimeout(wake, READ_AGAIN));
    }
  }

  /** Follow the stream; again and again, because it ends when the service or this page is slow. */
  async #follow() {
    while (!this.stop.signal.aborted) {
      try {
        for await (const change of changes(["record"], this.stop.signal, MOST)) this.#note(change);
        this.problem = "Some changes are missing here: the live log was interrupted.";
      } catch (error) {
        if (this.stop.signal.aborted) return;
        this.problem = `No live log: ${error.message}.`;
      }
      this.#changed();
      await new Promise((wake) => setTimeout(wake, RETRY));
    }
  }

  #note({ type, data }) {
    this.#changed();
    if (type === "skipped") this.skipped += data.records;
    if (type !== "record") return;
    this.problem = "";
    this.seen++;
    this.log.unshift({ ...data, at: Date.now() / 1000 });
    this.log.length = Math.min(this.log.length, KEPT);
    if (data.id === this.picked) [this.record, this.unread] = [data, ""];
  }

  #drawOne() {
    const now = JSON.stringify([this.record, this.unread]);
    if (!this.picked || this.drawnOne === now) return;
    this.drawnOne = now;
    if (this.unread) show(this.one, card(this.picked, h("p", { class: "error" }, this.unread)));
    else show(this.one, this.record ? recordCard(this.record) : h("p", { class: "empty" }, "Loading…"));
  }

  #drawLog() {
    const now = `${this.seen} ${this.skipped} ${this.problem}`;
    if (this.drawn === now) return;
    this.drawn = now;
    const all = this.seen + this.skipped;
    const sampled = this.skipped > 0 && h("p", { class: "note" }, pill("idle", "sampled"),
      ` ${number(this.seen)} of ${number(all)} changes are shown: at most ${MOST} per second. Search finds every record.`);
    show(this.lines, card("Live log", this.problem && h("p", { class: "error" }, this.problem), sampled,
      rows(`The last ${KEPT} changes that were shown; ${number(all)} since this view was opened`, this.log, "Nothing has changed since this view was opened.", "log")));
  }
}

function rows(caption, items, empty, id) {
  return table(caption, [
    { title: "Time", value: (row) => h("span", { class: "nowrap" }, clock(row.at ?? row.created)) },
    { title: "Id", value: (row) => h("a", { class: "nowrap", href: `#/requests/${encodeURIComponent(row.id)}` }, row.id) },
    { title: "Kind", value: (row) => row.kind },
    { title: "Host", value: (row) => row.host },
    { title: "Space", value: (row) => row.space },
    { title: "Filter", value: (row) => h("code", null, filterText(row.filter)) },
    { title: "State", value: (row) => pill(LEVEL[row.state], row.state) },
    { title: "Total", number: true, value: (row) => withUnit(row.timing?.total_ms, "ms") },
  ], items, empty, id);
}

const isOpen = (record) => record.updating || record.state === "pending" || record.state === "removing";

/** What the control plane waits for, or why it has given up, in a sentence of its own. */
function why(record) {
  if (record.state === "failed") return h("p", { class: "error" }, `It has failed: ${record.reason ?? "no reason was given"}`);
  if (!isOpen(record)) return record.reason && h("p", { class: "note" }, record.reason);
  return h("p", { class: "waits" }, pill("warn", "waits"),
    ` ${record.reason ?? "It is on its way: no stage has taken unusually long yet."}`);
}

/** The same action for a shell: how to take the record back. */
function removal(record) {
  const [path, command] = record.kind === "subscription" ? ["subscriptions", "unsubscribe"] : ["advertisements", "unadvertise"];
  return record.state === "active" && h("p", { class: "tools" }, h("span", { class: "note" }, "To remove it:"),
    copyable("DELETE", `${path}/${encodeURIComponent(record.id)}`, undefined, `dzflow ${command} ${record.id}`));
}

function recordCard(record) {
  const { timing } = record;
  const total = timing?.total_ms || 1;
  const stages = timing && h("ol", { class: "stages" }, STAGES.map(([field, name], place) => {
    const bar = h("i", { class: `fill c${place}` });
    bar.style.width = `${Math.max(0.5, (100 * timing[field]) / total)}%`;
    return h("li", null, h("span", null, name), h("span", { class: "track" }, bar), h("b", null, withUnit(timing[field], "ms")));
  }));
  return card(`${record.kind} ${record.id}`,
    h("p", null, pill(LEVEL[record.state], record.state), ` of ${record.host} in ${record.space}, `,
      h("code", null, filterText(record.filter)), record.label ? ` – ${record.label}` : ""),
    why(record),
    h("p", { class: "note" }, `${record.regions.length} regions in ${record.partitions.length} partitions; ${record.flow_ops} flow operations; ${timing ? withUnit(timing.total_ms, "ms in all") : "not acknowledged yet"}.`),
    h("p", { class: "note" }, `Made ${moment(record.created)}`,
      record.acknowledged ? `, acknowledged by all switches ${moment(record.acknowledged)}` : "",
      record.expires ? `, ends ${moment(record.expires)} unless it is renewed` : "", "."),
    stages, removal(record));
}
