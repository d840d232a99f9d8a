// Places for the switches of a network: in layers where it has them, by forces otherwise. Pure.

/**
 * Places between 0 and 1 for all switches, as a Map from id to {x, y}. Switches with hosts are the
 * lowest layer, and each other switch is one above the lowest that it is linked to. Networks with
 * few layers, such as trees and fat trees, are drawn so; in others, forces pull neighbours together.
 */
export function layout(switches, links, hosts) {
  const near = new Map(switches.map((one) => [one.id, []]));
  for (const link of links) {
    near.get(link.a)?.push(link.b);
    near.get(link.b)?.push(link.a);
  }
  const chain = inChain(switches, near);
  if (chain) return chain;
  const layer = layers(switches, near, new Set(hosts.map((host) => host.switch)));
  const crossing = links.filter((link) => layer.get(link.a) === layer.get(link.b)).length;
  const deepest = Math.max(0, ...layer.values());
  if (deepest === 0 || deepest > 6 || crossing > links.length / 10) return byForces(switches, near);
  return inLayers(switches, near, layer, deepest);
}

/** A line is drawn as a line, a ring as a ring; null for all other networks. */
function inChain(switches, near) {
  const peers = new Map([...near].map(([id, ids]) => [id, [...new Set(ids)]]));
  if (switches.length < 3 || [...peers.values()].some((ids) => ids.length > 2)) return null;
  const ends = switches.filter((one) => peers.get(one.id).length === 1).map((one) => one.id);
  const order = [ends[0] ?? switches[0].id], seen = new Set(order);
  for (let next; (next = peers.get(order.at(-1)).find((id) => !seen.has(id))); seen.add(next)) order.push(next);
  if (order.length < switches.length) return null; // it falls apart
  return new Map(order.map((id, place) => {
    if (ends.length) return [id, { x: place / (order.length - 1), y: 0.5 }];
    const angle = (2 * Math.PI * place) / order.length - Math.PI / 2;
    return [id, { x: 0.5 + 0.3 * Math.cos(angle), y: 0.5 + 0.5 * Math.sin(angle) }];
  }));
}

function layers(switches, near, edge) {
  const layer = new Map();
  let present = switches.filter((one) => edge.has(one.id)).map((one) => one.id);
  for (let height = 0; present.length; height++) {
    present.forEach((id) => layer.set(id, height));
    present = [...new Set(present.flatMap((id) => near.get(id)))].filter((id) => !layer.has(id));
  }
  for (const one of switches) if (!layer.has(one.id)) layer.set(one.id, 0);
  return layer;
}

function inLayers(switches, near, layer, deepest) {
  const rows = Array.from({ length: deepest + 1 }, () => []);
  for (const one of switches) rows[layer.get(one.id)].push(one.id);
  const place = new Map();
  const spread = (row, height) => row.forEach((id, index) =>
    place.set(id, { x: (index + 0.5) / row.length, y: 1 - height / deepest }));
  rows.forEach(spread);
  // Each layer is ordered by where its neighbours below are, so that pods stay together.
  for (let height = 1; height <= deepest; height++) {
    const below = (id) => near.get(id).filter((other) => layer.get(other) === height - 1);
    const mean = new Map(rows[height].map((id) => [id, average(below(id).map((one) => place.get(one).x))]));
    rows[height].sort((a, b) => mean.get(a) - mean.get(b));
    spread(rows[height], height);
  }
  return place;
}

const average = (values) => values.reduce((sum, value) => sum + value, 0) / (values.length || 1);

function byForces(switches, near) {
  const count = switches.length;
  const place = new Map(switches.map((one, index) => {
    const angle = (2 * Math.PI * index) / count;
    return [one.id, { x: 0.5 + 0.4 * Math.cos(angle), y: 0.5 + 0.4 * Math.sin(angle) }];
  }));
  const wanted = 0.8 / Math.sqrt(count || 1);
  for (let step = 0; step < 150; step++) {
    const reach = 0.08 * (1 - step / 150);
    const moves = new Map(switches.map((one) => [one.id, { x: 0, y: 0 }]));
    for (const [a, from] of place) {
      for (const [b, to] of place) {
        if (a >= b) continue;
        const dx = from.x - to.x, dy = from.y - to.y, far = Math.hypot(dx, dy) || 1e-6;
        const linked = near.get(a).includes(b);
        const force = (wanted * wanted) / far - (linked ? (far * far) / wanted : 0);
        moves.get(a).x += (dx / far) * force;
        moves.get(a).y += (dy / far) * force;
        moves.get(b).x -= (dx / far) * force;
        moves.get(b).y -= (dy / far) * force;
      }
    }
    for (const [id, at] of place) {
      const move = moves.get(id), length = Math.hypot(move.x, move.y) || 1;
      const step = Math.min(reach, length) / length;
      at.x += move.x * step;
      at.y += move.y * step;
    }
  }
  return scaled(place);
}

function scaled(place) {
  const xs = [...place.values()].map((at) => at.x), ys = [...place.values()].map((at) => at.y);
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  const [width, height] = [Math.max(...xs) - left || 1, Math.max(...ys) - top || 1];
  for (const at of place.values()) {
    at.x = (at.x - left) / width;
    at.y = (at.y - top) / height;
  }
  return place;
}
