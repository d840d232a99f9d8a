// What the balancer and the scheduled Spark job propose, in one form: an identity, reasons, figures,
// and the partitions as they would be. Pure, but for what was dismissed in this tab.

import { byOwner } from "./space_map.js";

const DISMISSED = "dzflow-dismissed";
const MOST = 100; // dismissed proposals that are remembered

export function dismissed() {
  try {
    return new Set(JSON.parse(sessionStorage.getItem(DISMISSED) ?? "[]"));
  } catch {
    return new Set();
  }
}

export function dismiss(id) {
  sessionStorage.setItem(DISMISSED, JSON.stringify([...dismissed(), id].slice(-MOST)));
}

export function bringBack() {
  sessionStorage.removeItem(DISMISSED);
}

/** A short text that differs for different texts, but for chance: plans can be large. */
function digest(text) {
  let found = 0x811c9dc5;
  for (let place = 0; place < text.length; place++) found = Math.imul(found ^ text.charCodeAt(place), 0x01000193);
  return `${text.length}-${(found >>> 0).toString(16)}`;
}

/** The load of the busiest over the mean; null if there is no load. */
function imbalance(shares) {
  const all = [...shares.values()], total = all.reduce((sum, one) => sum + one, 0);
  return total > 0 ? (Math.max(...all) * all.length) / total : null;
}

/** The load of the configurators `names` before and after: those that are down or leave do not count. */
const figures = (before, after, names) => {
  const [now, then] = [before, after].map((side) => new Map(names.map((name) => [name, side.get(name) ?? 0])));
  return { before: now, after: then, imbalance: [imbalance(now), imbalance(then)] };
};

/** The proposal of the balancer's policy; null if it proposes no move. `names`: configurators that take part. */
export function balancerProposal(decision, parts, names) {
  if (!decision?.moves.length) return null;
  const target = new Map(decision.moves.map((one) => [one.partition, one.target]));
  const proposed = parts.map((one) => target.has(one.id)
    ? { ...one, owner: target.get(one.id), changed: true, note: `moves to ${target.get(one.id)}` } : one);
  return {
    id: `balancer ${decision.moves.map((one) => `${one.partition}>${one.target}`).join(" ")}`,
    title: "The balancer proposes", by: "balancer", moves: decision.moves,
    reasons: decision.moves.map((one) => `${one.partition} from ${one.source} to ${one.target}: ${one.reason}`),
    present: parts, proposed, space: "",
    figures: figures(byOwner(parts), byOwner(proposed), names),
  };
}

/** The proposals of the scheduled job's last run that fit the maps as they are now. */
export function jobProposals(job, maps, parts, names) {
  const run = job?.last;
  return (run?.spaces ?? []).filter((one) => one.plan && !one.applied).map((found) => {
    const { plan } = found;
    const map = maps.find((one) => one.space === plan.space && one.version === plan.version);
    const present = parts.filter((one) => one.space === plan.space);
    const shares = (given) => new Map(Object.entries(given ?? {}));
    return {
      id: `job ${plan.space} ${digest(JSON.stringify(plan))}`, title: `The Spark job proposes a plan for ${plan.space}`, by: "job", plan,
      stale: !map || map.number !== plan.number, refused: found.refused, reasons: plan.reasons, present,
      proposed: map ? planned(map.map, plan, present) : [], space: plan.space, at: run.ended,
      figures: { ...figures(shares(found.shares), shares(found.predicted_shares), names), imbalance: [found.imbalance, found.predicted] },
    };
  });
}

/** The partitions that a plan leads to; the load of those that are cut is shared by their heirs. */
export function planned(map, plan, present) {
  const known = new Map(present.map((one) => [one.name, one]));
  const found = [];
  walk(map.plan, map.root, plan.map.root, [], (removed, added) => {
    const load = removed.reduce((sum, name) => sum + (known.get(name)?.load ?? 0), 0);
    const kept = removed.length === 1 && removed[0] === added[0] ? known.get(removed[0]) : null;
    for (const name of added) {
      const before = known.get(removed[0])?.owner ?? "";
      const owner = plan.assignment[name] ?? before;
      const moves = kept && owner !== kept.owner;
      found.push({
        id: name, name, owner, load: load / added.length, words: kept?.words, space: plan.space,
        changed: !kept || moves, note: !kept ? "new" : moves ? `moves to ${owner}` : "",
      });
    }
  });
  return found;
}

/** Call `each` with the leaves that go and those that come, for every part in which two trees differ. */
function walk(kind, old, next, path, each) {
  if (old && next && old.bit === next.bit) {
    for (const [value, child] of children(kind)) {
      walk(kind, old[child], next[child], [...path, step(kind, old.bit, value)], each);
    }
  } else {
    each(leaves(kind, old, path), leaves(kind, next, path));
  }
}

const children = (kind) => (kind === "lpm" ? [["0", "zero"], ["1", "one"]] : [["0", "zero"], ["1", "one"], ["x", "open"]]);
const step = (kind, bit, value) => (kind === "lpm" ? value : `${bit}-${value}`);

function leaves(kind, node, path) {
  if (!node) return [path.join(kind === "lpm" ? "" : ".") || "all"];
  return children(kind).flatMap(([value, child]) => leaves(kind, node[child], [...path, step(kind, node.bit, value)]));
}
