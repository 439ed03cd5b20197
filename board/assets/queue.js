// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

import { address, age, h, keyed, notice, pill, refusal } from './dom.js';
import { figure } from './fleet.js';
import { follow } from './live.js';

/** queue shows who waits, in order, and why. */
export function queue(main, { values, state }) {
  const summary = h('dl', { class: 'summary' }), list = h('ol', { class: 'queue' }), note = h('div');
  main.append(h('div', { class: 'heading' }, h('h1', {}, 'Queue')), summary, note, list);
  return follow('queue', { namespace: values.namespace }, ({ head, items }) => {
    summary.replaceChildren(figure('Waiting', head.total), figure('For room', head.room), figure('For a repair', head.repair));
    note.replaceChildren(...[
      head.total === 0 && notice('Nobody waits', 'Each job has a worker, or has ended.'),
      head.total > 0 && !head.whole && h('p', { class: 'muted' }, 'Positions are not known, because you may not list the jobs of all namespaces.'),
      head.total > items.length && h('p', { class: 'muted' }, `The first ${items.length} of ${head.total}.`),
    ].filter(Boolean));
    keyed(list, items, waiting);
  }, (problem) => {
    summary.replaceChildren();
    list.replaceChildren();
    note.replaceChildren(refusal(problem));
  }, state);
}

function waiting(job) {
  const position = job.position === null ? '?' : job.position || '–';
  return h('li', { class: `card wait ${job.tone}` },
    h('div', { class: 'position', title: job.position ? 'position in the waiting list' : 'no position: it waits for something else than room' }, h('span', { class: 'hidden' }, 'Position '), String(position)),
    h('div', { class: 'wait-body' },
      h('header', {}, h('h2', {}, h('a', { href: address('job', { namespace: job.namespace, name: job.name }), 'data-focus': 'job' }, job.name)), pill(job.tone, job.reason)),
      h('p', { class: 'muted' }, `${job.namespace} · ${job.needs} · priority ${job.priority} · waits for `, age(job.created)),
      job.message && h('p', {}, job.message),
      job.advice && h('p', { class: 'advice' }, h('strong', {}, 'To do: '), job.advice),
      job.workers?.length > 0 && h('details', { open: job.position === 1 }, h('summary', { 'data-focus': 'why' }, `Why not, on ${job.workers.length + (job.more ?? 0)} workers`), lines(job.workers),
        job.more > 0 && h('p', { class: 'muted' }, `${job.more} more are on the page of the job.`))));
}

/** lines says for each worker why it does not take a job, or how well it fits. */
export function lines(workers) {
  return h('table', { class: 'lines why' },
    h('thead', {}, h('tr', {}, ['Worker', 'Result', 'Why'].map((name) => h('th', { scope: 'col' }, name)))),
    h('tbody', {}, workers.map((w) => h('tr', {}, h('th', { scope: 'row' }, w.worker),
      h('td', {}, w.score === undefined ? w.result : `${w.result}, score ${w.score}`), h('td', {}, w.message)))));
}
