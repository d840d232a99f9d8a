// Type a filter and see what it would do, then subscribe; give an event and watch it travel.

import { act, copyable, outcome, quoted } from "../actions.js";
import { call, get } from "../api.js";
import { card, h, pill, show } from "../dom.js";
import { EventForm } from "../event_form.js";
import { changesTable, Explainer, hostChoices, isForeign, linkAt, offer, problemText, touched } from "../explaining.js";
import { FilterInput } from "../filter_input.js";
import { count, percent } from "../format.js";
import { TopologyMap } from "../topology_map.js";

const STEP = 600; // milliseconds that an event stays at each hop while it is shown
const CALM = window.matchMedia("(prefers-reduced-motion: reduce)");

export class TryIt {
  #marks = { filter: {}, event: {} };
  #seen = "filter"; // which of the two the map shows

  constructor(live) {
    this.live = live;
    this.explainer = new Explainer(() => this.#question(), (...answer) => this.#showVerdict(...answer));
    this.space = h("select", { name: "space", onchange: () => this.#choose() });
    this.host = h("select", { name: "host", onchange: () => this.explainer.later() });
    this.filter = new FilterInput(() => this.#schema, () => this.explainer.later());
    this.verdict = h("div", { id: "verdict" });
    this.where = outcome();
    this.copies = h("span");
    this.publisher = h("select", { name: "publisher", onchange: () => this.#offerPublishing() });
    this.event = new EventForm();
    this.eventCopies = h("span");
    this.publishing = h("button", { type: "button", class: "quiet", onclick: () => this.#publish() }, "Publish the event");
    this.publishingCopies = h("span");
    this.published = outcome();
    this.path = h("div", { id: "path" });
    this.said = h("p", { id: "said", role: "status" });
    this.map = new TopologyMap(live, { pick: (id) => { location.hash = `#/network/${encodeURIComponent(id)}`; } });
    this.choices = new Map([["filter", "flows of the filter"], ["event", "way of the event"]].map(([name, text]) => {
      const input = h("input", { type: "radio", name: "shown", value: name, checked: name === "filter", onchange: () => this.#see(name) });
      return [name, { input, label: h("label", null, input, ` ${text}`) }];
    }));
    this.legend = h("ul", { class: "legend" });
    this.element = h("div", { class: "view try" }, h("h1", null, "Try it"), this.#filterCard(),
      h("div", { class: "beside" }, h("div", { class: "view" }, this.verdict, this.#eventCard()), this.#mapCard()));
  }

  close() {
    this.explainer.stop();
    clearTimeout(this.stepping);
  }

  update() {
    const spaces = [...this.live.spaces.keys()].sort().map((name) => [name, name]);
    const hosts = hostChoices(this.live);
    this.map.update();
    const chosen = [offer(this.host, hosts), offer(this.publisher, hosts), offer(this.space, spaces), this.event.offer(this.#schema)];
    if (chosen.some(Boolean)) this.#choose();
    this.#offerPublishing();
    if (!spaces.length) show(this.verdict, h("p", { class: "empty" }, "There is no space yet: make one with dzflow space put."));
  }

  get #schema() {
    return this.live.spaces.get(this.space.value)?.attributes ?? [];
  }

  #filterCard() {
    const form = h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); this.#subscribe(); } },
      h("label", null, "Space ", this.space), h("label", null, "Host ", this.host), this.filter.element,
      h("button", { type: "submit" }, "Subscribe"), this.copies);
    return card("A filter", form, this.filter.error, this.where);
  }

  #eventCard() {
    const form = h("form", { onsubmit: (event) => { event.preventDefault(); this.#follow(); }, oninput: () => this.#offerPublishing() },
      h("p", { class: "note" }, "See how an event would travel by the tables of the switches, or really publish it."),
      this.event.element,
      h("div", { class: "tools" }, h("label", null, "Publisher ", this.publisher),
        h("button", { type: "submit" }, "Follow the event"),
        h("button", { type: "button", class: "quiet", onclick: () => { this.event.randomise(); this.#offerPublishing(); this.#follow(); } }, "Random event"),
        this.eventCopies),
      h("div", { class: "tools" }, this.publishing, this.publishingCopies));
    return card("An event", form, this.published, this.said, this.path);
  }

  #mapCard() {
    return card("On the network",
      h("div", { class: "tools", role: "radiogroup", "aria-label": "Shown on the map" },
        [...this.choices.values()].map((one) => one.label), this.legend),
      this.map.element);
  }

  /** Another space was chosen: its attributes and publishers are others. */
  #choose() {
    this.event.offer(this.#schema);
    show(this.path);
    show(this.said);
    this.#mark("event", {});
    this.#findPublisher(this.space.value);
    this.explainer.later();
  }

  /** Choose a host that advertises something: others cannot publish. */
  async #findPublisher(space) {
    if (!space) return;
    try {
      const found = await get(`advertisements?space=${encodeURIComponent(space)}&state=active&limit=1`);
      if (space === this.space.value && found.items.length) this.publisher.value = found.items[0].host;
    } catch (error) {
      show(this.said, `The advertisements cannot be read: ${error.message}`);
    }
  }

  #question() {
    const body = { host: this.host.value, space: this.space.value, filter: this.filter.value || {} };
    if (!body.space || !body.host) return null;
    show(this.copies, copyable("POST", "subscribe", body,
      `dzflow subscribe --host ${body.host} --space ${body.space} --filter ${quoted(this.filter.value || "true")}`));
    return body;
  }

  #showVerdict({ host }, found, problem) {
    const foreign = problem && isForeign(problem); // the filter itself may be fine
    this.host.setAttribute("aria-invalid", String(Boolean(foreign)));
    this.filter.showProblem(foreign ? null : problem);
    show(this.verdict, found ? explained(found) : foreign && h("p", { class: "error" }, problemText(problem)));
    this.#mark("filter", found?.flows.length ? subscribed(found.flows, this.live.topology, host) : {});
    if (found && !this.path.childElementCount) this.#see("filter");
  }

  async #subscribe() {
    const body = { host: this.host.value, space: this.space.value, filter: this.filter.value || {} };
    const record = await act(this.where, "Subscribe", "POST", "subscribe", body);
    if (!record) return;
    show(this.where, "Subscribed: ", h("a", { href: `#/requests/${encodeURIComponent(record.id)}` }, record.id));
    this.explainer.later();
  }

  async #follow() {
    clearTimeout(this.stepping);
    const body = { space: this.space.value, host: this.publisher.value, event: this.event.value };
    show(this.eventCopies, copyable("POST", "explain", body,
      `dzflow explain --space ${body.space} --host ${body.host} --event ${quoted(JSON.stringify(body.event))}`));
    show(this.said, "Following the event…");
    try {
      const { event, note } = await call("POST", "explain", body);
      this.event.blame(null);
      this.#showPath(event, note, body.host);
    } catch (error) {
      this.event.blame(error.body?.field ?? null);
      show(this.path);
      this.#mark("event", {});
      show(this.said, h("span", { class: "error" }, problemText(error)));
    }
  }

  /** Why the service cannot publish in the name of the chosen host; "" if it can. */
  #whyNotPublished() {
    const host = this.live.topology?.hosts.find((one) => one.id === this.publisher.value);
    const space = this.live.spaces.get(this.space.value);
    if (!host || !space) return "There is no host or no space to publish in.";
    if (space.authentication !== "none") return "Events of this space carry tags: only a host with the keys can publish them.";
    return host.wire || this.live.lab ? "" : `${host.id} is neither emulated nor in the lab: publish on it, with the SDK or dzflow publish.`;
  }

  /** Offer to publish the event as it is typed, or say why that cannot be done. */
  #offerPublishing() {
    const body = { host: this.publisher.value, space: this.space.value, event: this.event.value };
    const why = this.#whyNotPublished(), key = JSON.stringify([body, why]);
    if (key === this.offeredToPublish) return;
    this.offeredToPublish = key;
    this.publishing.disabled = Boolean(why);
    const command = `dzflow publish --host ${body.host} --space ${body.space} ${quoted(JSON.stringify(body.event))}`;
    show(this.publishingCopies, why ? h("span", { class: "note" }, why) : copyable("POST", "publish", body, command));
  }

  async #publish() {
    const body = { host: this.publisher.value, space: this.space.value, event: this.event.value };
    const sent = await act(this.published, `Publish as ${body.host}`, "POST", "publish", body);
    if (!sent) return;
    show(this.published, `Published as ${body.host}: event ${sent.id}, sent to `, h("code", null, sent.address), `, on tree ${sent.tree}.`);
    this.#follow();
  }

  #showPath(found, note, publisher) {
    show(this.said, summary(found, publisher));
    if (!found.hops) {
      show(this.path, h("p", { class: "note" }, "Where it goes tells what other hosts want: only operators see it. ", note));
      return this.#mark("event", {});
    }
    const depths = depthsOf(found.hops, publisher);
    const items = found.hops.map((hop) => h("li", null, hopText(hop)));
    show(this.path, note && h("p", { class: "note" }, note), hostsOf(found),
      h("div", { class: "tools" }, h("h3", null, "Hops"),
        found.hops.length > 1 && h("button", { type: "button", class: "quiet", onclick: () => this.#play(found, publisher, depths, items) }, "Play again")),
      h("ol", { class: "hops", tabindex: "0", "aria-label": "Hops of the event" }, items),
      h("p", { class: "note" }, "Address ", h("code", null, found.address), `, tree ${found.tree}.`));
    this.#see("event");
    this.#play(found, publisher, depths, items);
  }

  /** Show the hops one after the other; all at once to viewers who want no motion. */
  #play(found, publisher, depths, items) {
    clearTimeout(this.stepping);
    const last = Math.max(...depths);
    const step = (depth) => {
      const now = depth <= last;
      items.forEach((item, place) => {
        item.className = now && depths[place] === depth ? "now" : depths[place] > depth ? "later" : "";
      });
      this.#mark("event", travelled(found, depths, depth, publisher, this.live.topology));
      if (now) this.stepping = setTimeout(() => step(depth + 1), STEP);
    };
    step(CALM.matches ? last + 1 : 0);
  }

  #mark(name, marks) {
    this.#marks[name] = marks;
    if (name === this.#seen) this.#see(name);
  }

  #see(name) {
    this.#seen = name;
    this.choices.get(name).input.checked = true;
    this.map.mark(this.#marks[name]);
    show(this.legend, LEGEND[name].map(([level, text]) => h("li", null, h("i", { class: `key ${level}` }), text)));
  }
}

const LEGEND = {
  filter: [["changes", "switch that would change"], ["source", "subscriber"]],
  event: [["source", "publisher"], ["touched", "switch on the way"], ["reached", "host that wants it"],
    ["unwanted", "host that gets it unwanted"], ["missed", "host that misses it"]],
};

function explained(found) {
  const level = found.false_share < 0.2 ? "good" : found.false_share < 0.6 ? "warn" : "bad";
  return h("div", { class: "grid two" },
    card("What the switches would let through",
      h("p", null, pill(level, `${percent(found.false_share)} unwanted`), ` ${count(found.regions.length, "region")} in ${count(found.partitions.length, "partition")}`),
      h("ul", { class: "cells", tabindex: "0", "aria-label": "Cells" }, found.cells.map((cell) => h("li", null, h("code", null, cell))))),
    card("Flow operations", found.note && h("p", { class: "note" }, found.note),
      changesTable(found.flows)));
}

/** Marks for what a subscription of a host would change. */
function subscribed(flows, topology, host) {
  const marks = touched(flows, topology);
  marks.hosts.set(host, "source");
  return marks;
}

/** How many hops each one is away from the publisher. */
function depthsOf(hops, publisher) {
  const depth = new Map([[publisher, -1]]);
  return hops.map((hop) => {
    depth.set(hop.switch, (depth.get(hop.from) ?? -1) + 1);
    return depth.get(hop.switch);
  });
}

/** Marks for an event that has gone so many hops far. */
function travelled(found, depths, far, publisher, topology) {
  const switches = new Map(), links = new Set(), at = linkAt(topology.links);
  const hosts = new Map([...found.missed.map((id) => [id, "missed"]), [publisher, "source"]]);
  found.hops.forEach((hop, place) => {
    if (depths[place] > far) return;
    switches.set(hop.switch, depths[place] === far ? "touched now" : "touched");
    for (const target of hop.to) {
      if (target.host !== undefined) hosts.set(target.host, found.unwanted.includes(target.host) ? "unwanted" : "reached");
      else links.add(at(hop.switch, target.port));
    }
  });
  return { switches, links, hosts };
}

const listed = (hosts) => hosts.join(", ");

function summary(found, publisher) {
  if (!found.admitted) return [pill("bad", "not admitted"), ` ${found.reason}`];
  if (!found.hops) return [pill("good", "admitted"), ` The switch of ${publisher} lets it in.`];
  const text = ` It would reach ${count(found.delivered.length, "host")} in ${count(found.hops.length, "hop")}.`;
  return [pill("good", "admitted"), text, found.missed.length > 0 && pill("bad", `${listed(found.missed)} would miss it`)];
}

function hostsOf(found) {
  if (!found.admitted) return null;
  const wanted = found.delivered.filter((host) => !found.unwanted.includes(host));
  const rows = [["Delivered to", wanted], ["Unwanted by", found.unwanted], ["Missed by", found.missed]];
  return h("dl", { class: "receivers" }, rows.map(([title, hosts]) => [h("dt", null, title), h("dd", null, listed(hosts) || "none")]));
}

function hopText(hop) {
  const targets = hop.to.map((target) => `${target.switch ?? `host ${target.host}`} (port ${target.port})`);
  return [h("b", null, hop.switch), ` from ${hop.from} (port ${hop.in_port}) to ${targets.join(", ") || "nowhere: it is dropped"}`];
}
