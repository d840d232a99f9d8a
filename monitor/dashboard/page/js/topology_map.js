// The network as a drawing: switches, links and hosts. It is built once per topology; after that,
// only classes and titles change, because the stream brings changes every second.

import { h, s, show } from "./dom.js";
import { layout } from "./layout.js";

const WIDTH = 1000, HEIGHT = 460, MARGIN = 28, HOST_BELOW = 34;
const LEVEL = { up: "good", down: "bad", unknown: "idle" };
const MANY = 40; // switches from which on they are drawn small

/** A name for a link that is the same from both of its ends. */
export const linkName = (link) => [`${link.a}:${link.a_port}`, `${link.b}:${link.b_port}`].sort().join(" ");

export class TopologyMap {
  #live;
  #pick;
  #topology = null; // the one that was looked at last
  #shape = ""; // what is drawn, without states
  #switches = new Map(); // id to {group, title}
  #hosts = new Map();
  #links = new Map(); // name to line
  #marks = {};

  /** `pick(id, kind)` is called when a "switch" or a "host" is clicked, or picked by the keyboard. */
  constructor(live, { pick }) {
    this.#live = live;
    this.#pick = pick;
    this.element = h("div", { class: "drawing" }, h("p", { class: "empty" }, "Loading the network…"));
  }

  /** Draw what has changed since the last call. */
  update() {
    const { topology } = this.#live;
    if (!topology) return;
    if (topology !== this.#topology) {
      this.#topology = topology;
      const shape = JSON.stringify([topology.switches.map((one) => one.id),
        topology.links.map(linkName), topology.hosts.map((one) => [one.id, one.switch])]);
      if (shape !== this.#shape) {
        this.#shape = shape;
        this.#build(topology);
      }
    }
    this.#refresh();
  }

  /**
   * Mark switches and hosts (Maps from id to class names), links (a Set of names; the others are drawn
   * faint) and the one that is picked (its id). `loads` (a Map from id to {share, text}) says how full
   * switches are, `ends` (a Set of SWITCH:PORT) which ports differ from what they should lead to. What
   * was marked before is no longer.
   */
  mark(marks) {
    this.#marks = marks;
    // A topology that is new is drawn by `update`, before its parts can be marked.
    if (this.#topology && this.#topology === this.#live.topology) this.#refresh();
  }

  #refresh() {
    const { switches, links, hosts, picked, loads, ends } = this.#marks;
    const differs = (id, port) => ends?.has(`${id}:${port}`);
    const { topology } = this.#live;
    for (const one of topology.switches) {
      const { state, reason } = this.#live.switches.get(one.id) ?? one;
      const node = this.#switches.get(one.id), load = loads?.get(one.id);
      setNode(node, `node switch ${LEVEL[state] ?? "idle"}`,
        [switches?.get(one.id) ?? (switches && "aside"), one.id === picked && "picked"],
        `switch ${one.id}${one.label ? ` (${one.label})` : ""}: ${[state, reason, load?.text].filter(Boolean).join(", ")}`);
      setFill(node, load?.share ?? 0);
    }
    for (const one of topology.hosts) {
      setNode(this.#hosts.get(one.id), `node host ${one.unreachable ? "bad" : "good"}`,
        [hosts?.get(one.id) ?? (hosts && "aside"), one.id === picked && "picked", differs(one.switch, one.port) && "differs"],
        `host ${one.id}${one.unreachable ? `: ${one.unreachable}` : ""}`);
    }
    for (const link of topology.links) {
      const name = linkName(link);
      const used = links && (links.has(name) ? "used" : "unused");
      setClass(this.#links.get(name), ["link", !link.up && "down", used,
        (differs(link.a, link.a_port) || differs(link.b, link.b_port)) && "differs"]);
    }
  }

  #build(topology) {
    const places = layout(topology.switches, topology.links, topology.hosts);
    const at = (id) => {
      const place = places.get(id) ?? { x: 0.5, y: 0.5 };
      return [MARGIN + place.x * (WIDTH - 2 * MARGIN), MARGIN + place.y * (HEIGHT - 3.5 * MARGIN)];
    };
    const inRow = Map.groupBy(topology.switches, (one) => at(one.id)[1]);
    const hasRoom = (y) => topology.switches.length <= MANY || inRow.get(y).length <= MANY;
    const small = topology.switches.length > MANY;
    const hanging = Map.groupBy(topology.hosts, (host) => host.switch);
    this.#links = new Map(topology.links.map((link) => {
      const [x1, y1] = at(link.a), [x2, y2] = at(link.b);
      return [linkName(link), s("line", { x1, y1, x2, y2 })];
    }));
    this.#switches.clear();
    this.#hosts.clear();
    const nodes = topology.switches.map((one) => {
      const [x, y] = at(one.id);
      const hosts = hanging.get(one.id) ?? [];
      const apart = Math.min(16, 34 / Math.max(1, hosts.length));
      const leaves = hosts.map((host, place) => {
        const hx = x + (place - (hosts.length - 1) / 2) * apart, hy = y + HOST_BELOW;
        const node = this.#node("host", host.id, s("circle", { cx: hx, cy: hy, r: 4 }));
        this.#hosts.set(host.id, node);
        return [s("line", { class: "link host", x1: x, y1: y, x2: hx, y2: hy }), node.group];
      });
      const size = small ? 6 : 10;
      const fill = s("rect", { class: "level", x: x - size, y: y + size, width: 2 * size, height: 0 });
      const node = this.#node("switch", one.id,
        s("rect", { x: x - size, y: y - size, width: 2 * size, height: 2 * size, rx: size / 3 }), fill);
      this.#switches.set(one.id, { ...node, fill, bottom: y + size, room: 2 * size, share: 0 });
      return [leaves, node.group,
        hasRoom(y) && s("text", { class: "name", x, y: y - (small ? 9 : 13), "text-anchor": "middle" }, one.id)];
    });
    const text = `${topology.switches.length} switches, ${topology.links.length} links, ${topology.hosts.length} hosts`;
    const ys = topology.switches.map((one) => at(one.id)[1]);
    const top = Math.min(...ys) - MARGIN, bottom = Math.max(...ys) + HOST_BELOW + MARGIN;
    show(this.element, s("svg", { viewBox: `0 ${top} ${WIDTH} ${bottom - top}`, class: "network", role: "group", "aria-label": text },
      [...this.#links.values()], nodes));
  }

  #node(kind, id, ...shapes) {
    const pick = () => this.#pick(id, kind);
    const title = s("title");
    const group = s("g", {
      tabindex: "0", role: "button", "data-id": id, onclick: pick,
      onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); } },
    }, title, shapes);
    return { group, title };
  }
}

function setNode(node, kind, marks, text) {
  setClass(node.group, [kind, ...marks]);
  if (node.title.textContent === text) return;
  node.title.textContent = text;
  node.group.setAttribute("aria-label", text);
}

/** Show how full a switch is by how high it is filled. */
function setFill(node, share) {
  const shown = Math.round(100 * Math.min(1, share)) / 100;
  if (shown === node.share) return;
  node.share = shown;
  node.fill.setAttribute("y", node.bottom - shown * node.room);
  node.fill.setAttribute("height", shown * node.room);
}

function setClass(element, names) {
  const value = names.filter(Boolean).join(" ");
  if (element.getAttribute("class") !== value) element.setAttribute("class", value);
}
