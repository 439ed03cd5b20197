// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

import { address, age, h, keyed, notice, pill, refusal, s } from './dom.js';
import { follow } from './live.js';

/** fleet shows a card for each worker. */
export function fleet(main, { values, set, state }) {
  const summary = h('dl', { class: 'summary' }), cards = h('div', { class: 'cards' }), empty = h('div');
  const filter = h('input', {
    type: 'search', size: 30, placeholder: 'Filter by name, label or GPU', 'aria-label': 'Filter workers', value: values.text ?? '',
    change: (event) => set({ text: event.target.value.trim() }),
  });
  main.append(h('div', { class: 'heading' }, h('h1', {}, 'Fleet'), filter), summary, empty, cards);
  return follow('fleet', {}, ({ head, items }) => {
    const text = (values.text ?? '').toLowerCase();
    const shown = text ? items.filter((w) => JSON.stringify([w.name, w.labels, w.pools, w.title]).toLowerCase().includes(text)) : items;
    summary.replaceChildren(...figures(head));
    empty.replaceChildren(...(items.length === 0 ? [noWorkers()] : shown.length === 0 ? [notice('No worker matches', `None of ${items.length} workers has “${values.text}” in its name, labels or GPUs.`)] : []));
    keyed(cards, shown, card);
  }, (problem) => {
    summary.replaceChildren();
    cards.replaceChildren();
    empty.replaceChildren(refusal(problem));
  }, state);
}

const noWorkers = () => notice('No workers yet', 'A worker is a cluster that runs jobs. An admin brings one into the fleet with this command:',
  h('pre', {}, 'kubectl trainyard join NAME --context CONTEXT'));

/** figures are the numbers at the top of a page. */
export const figures = (head) => [
  figure('Workers ready', `${head.ready} of ${head.workers}`), figure('GPUs free', `${head.free} of ${head.total}`),
  figure('Nodes', head.nodes), figure('Jobs placed', head.jobs),
];

export const figure = (name, value) => h('div', {}, h('dt', {}, name), h('dd', {}, String(value)));

function card(worker) {
  const id = `worker-${worker.name}`;
  return h('article', { class: `card ${worker.tone}`, 'aria-labelledby': id },
    h('header', {}, h('h2', { id }, worker.name), pill(worker.tone, worker.title)),
    worker.message && h('p', { class: 'message' }, worker.message),
    worker.seen && h('p', { class: 'muted' }, 'Last seen ', age(worker.seen, ' ago'), '. What follows is from then.'),
    nodes(worker.nodes ?? []),
    (worker.pools ?? []).map(pool),
    h('dl', { class: 'details' },
      h('dt', {}, 'Jobs'), h('dd', {}, h('a', { href: address('jobs', { worker: worker.name }), 'data-focus': 'jobs' }, String(worker.jobs))),
      h('dt', {}, 'Free besides GPUs'), h('dd', {}, worker.cpu === '<unknown>' ? 'not known' : `${worker.cpu} cores, ${worker.memory}`),
      h('dt', {}, 'Agent'), h('dd', {}, worker.agent === 'True' ? 'answers' : worker.agent),
      h('dt', {}, 'Kubernetes'), h('dd', {}, worker.version),
      fact('Price', worker.price), fact('Can add', worker.canAdd), fact('Labels', worker.labels), fact('Taints', worker.taints)),
    worker.notes?.length > 0 && h('details', {}, h('summary', { 'data-focus': 'notes' }, `${worker.notes.length} to look at`), h('ul', {}, worker.notes.map((text) => h('li', {}, text)))));
}

const fact = (name, value) => value && value !== '<none>' ? [h('dt', {}, name), h('dd', {}, value)] : [];

function pool(p) {
  const used = p.total - p.free;
  return h('div', { class: 'pool' },
    h('div', { class: 'pool-words' }, h('span', {}, p.name), h('span', {}, h('strong', {}, String(p.free)), ` of ${p.total} free`)),
    bar(p.total ? used / p.total : 0, `${used} of ${p.total} ${p.name} in use`),
    h('div', { class: 'muted' }, p.gang === '0' ? 'no whole node is free' : `largest gang of whole nodes: ${p.gang.replace('x', ' × ')}`));
}

/** bar is a part of a whole. */
export function bar(part, label) {
  return s('svg', { class: 'bar', role: 'img', 'aria-label': label },
    s('rect', { class: 'ground', width: '100%', height: '100%', rx: 3 }), s('rect', { class: 'used', width: `${(100 * part).toFixed(1)}%`, height: '100%', rx: 3 }));
}

const mostCells = 120, side = 14, gap = 4, perRow = 20;

/** nodes draws a cell for each node, filled by how full it is. A cell of a large worker is several nodes. */
function nodes(groups) {
  const count = groups.reduce((sum, group) => sum + group.nodes, 0);
  if (!count) return h('p', { class: 'muted' }, 'No nodes are known.');
  const each = Math.ceil(count / mostCells);
  const cells = groups.flatMap((group) => Array(Math.ceil(group.nodes / each)).fill(group));
  const full = sum(groups, (g) => g.free <= 0 && g.total > 0), free = sum(groups, (g) => g.free >= g.total);
  const words = `${count} ${count === 1 ? 'node' : 'nodes'}: ${full} full, ${count - full - free} in part, ${free} free`;
  const rows = Math.ceil(cells.length / perRow), step = side + gap;
  return h('figure', { class: 'nodes' },
    s('svg', { role: 'img', 'aria-label': words, viewBox: `0 0 ${perRow * step - gap} ${rows * step - gap}`, class: 'cells' }, cells.map((group, at) => cell(group, at, step))),
    h('figcaption', { class: 'muted' }, words, each > 1 && `; a cell is up to ${each} nodes`));
}

const sum = (groups, which) => groups.filter(which).reduce((total, group) => total + group.nodes, 0);

function cell(group, at, step) {
  const used = group.total > 0 ? Math.min(1, Math.max(0, 1 - group.free / group.total)) : 0;
  const x = (at % perRow) * step, y = Math.floor(at / perRow) * step, height = Math.round(used * side);
  const amount = group.resource === 'cpu' ? (n) => n / 1000 : (n) => n;
  return s('g', {},
    s('title', {}, `${group.product || group.resource}: ${amount(group.free)} of ${amount(group.total)} ${group.resource} free`),
    s('rect', { class: 'ground', x, y, width: side, height: side, rx: 3 }),
    height > 0 && s('rect', { class: used >= 1 ? 'used full' : 'used', x, y: y + side - height, width: side, height, rx: 3 }));
}
