// The hosts that were heard and are not in the network: an operator accepts or rejects them.

import { act, copyable, outcome, quoted } from "./actions.js";
import { get } from "./api.js";
import { card, h, pill, show } from "./dom.js";
import { clock, count } from "./format.js";

const MOST_SHOWN = 20;
const ID = "[A-Za-z0-9_.\\-]{1,64}";

const EXPLAINED = {
  propose: "They join when you accept them.",
  accept: "They join by themselves, unless there is a doubt about them, or they were rejected.",
};

const pathOf = (row, what) => `host-proposals/${encodeURIComponent(row.id)}/${what}`;

export class HostProposals {
  constructor(live) {
    this.live = live;
    this.items = [];
    this.names = new Map(); // ids that were typed, by the id of the proposal
    this.copies = new Map(); // what brings the buttons that copy a call up to date, by the same
    this.body = h("div");
    this.said = outcome();
    this.element = h("div", { id: "host-proposals", hidden: true }, card("Hosts that were heard", this.body, this.said));
  }

  /** Read the list again if the stream says that it has changed. */
  update() {
    const known = this.live.proposals;
    if (!known || known === this.read || this.live.role !== "operator") return;
    this.read = known;
    this.#read();
  }

  async #read() {
    try {
      const { mode, items } = await get("host-proposals");
      this.items = items;
      this.#show(mode);
    } catch (error) {
      show(this.said, `Which hosts were heard is not known: ${error.message}`);
      this.said.className = "outcome error";
    }
  }

  #show(mode) {
    const { activeElement: before } = document;
    this.element.hidden = mode === "declared" && !this.items.length;
    const sound = this.items.filter((row) => row.state === "proposed" && !row.problem && !row.doubt);
    const more = this.items.length - MOST_SHOWN;
    show(this.body,
      h("p", { class: "tools" }, h("span", null, `${count(this.items.length, "host")}. ${EXPLAINED[mode] ?? ""}`),
        sound.length > 1 && h("button", { type: "button", "data-id": "accept all", onclick: () => this.#acceptAll(sound) },
          `Accept all ${sound.length} without doubt`),
        copyable("GET", "host-proposals", undefined, "dzflow hosts proposals")),
      h("ul", { class: "heard" }, this.items.slice(0, MOST_SHOWN).map((row) => this.#item(row))),
      more > 0 && h("p", { class: "note" }, `And ${count(more, "host")} more; \`dzflow hosts proposals\` lists all.`));
    const again = before?.dataset.id && this.body.querySelector(`[data-id="${CSS.escape(before.dataset.id)}"]`);
    again?.focus();
    again?.setSelectionRange?.(before.selectionStart, before.selectionEnd);
  }

  #item(row) {
    const reject = () => this.#decide(row, "reject", `Reject ${row.id}`);
    return h("li", null,
      h("div", null, h("strong", null, row.id), " ", stateOf(row), h("br"),
        "at ", h("a", { href: `#/network/${encodeURIComponent(row.switch)}` }, row.switch), `, port ${row.port}, since ${clock(row.since)}`,
        row.ipv6 && `, with the address ${row.ipv6}`,
        (row.problem || row.doubt) && h("div", { class: "note" }, row.problem || row.doubt)),
      h("div", { class: "tools" },
        !row.problem && [
          h("label", null, "Join as ", h("input", {
            value: this.#name(row), pattern: ID, size: 17, "aria-label": `Id of ${row.id}`, "data-id": `name ${row.id}`,
            oninput: ({ target }) => this.#rename(row, target.value.trim()) })),
          h("button", { type: "button", "data-id": `accept ${row.id}`, onclick: () => this.#accept(row) }, "Accept")],
        row.state === "proposed" && h("button", { type: "button", class: "quiet", "data-id": `reject ${row.id}`, onclick: reject }, "Reject"),
        !row.problem && this.#copies(row)));
  }

  #copies(row) {
    const element = h("span");
    this.copies.set(row.id, () => show(element, copyable("POST", pathOf(row, "accept"), this.#body(row),
      `dzflow hosts accept ${row.id} --name ${quoted(this.#name(row))}`)));
    this.copies.get(row.id)();
    return element;
  }

  #rename(row, name) {
    this.names.set(row.id, name);
    this.copies.get(row.id)();
  }

  #name(row) {
    return this.names.get(row.id) || row.id;
  }

  /** With its place: it is refused if the host is elsewhere by now. */
  #body(row) {
    return { id: this.#name(row), switch: row.switch, port: row.port };
  }

  #accept(row) {
    return this.#decide(row, "accept", `Accept ${row.id} as ${this.#name(row)}`, this.#body(row));
  }

  async #acceptAll(rows) {
    for (const row of rows) await this.#accept(row);
  }

  async #decide(row, what, doing, body) {
    const done = await act(this.said, doing, "POST", pathOf(row, what), body);
    if (done) this.names.delete(row.id);
    await this.#read();
  }
}

const stateOf = (row) => {
  if (row.problem) return pill("bad", "cannot join");
  if (row.state === "rejected") return pill("idle", "rejected");
  return row.doubt ? pill("warn", "doubtful") : pill("good", "proposed");
};
