// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

import { address, age, h, keyed, notice, pill, refusal } from './dom.js';
import { jobView } from './job.js';
import { follow } from './live.js';

const usualRows = 200, mostRows = 1000;

/** jobs shows the newest jobs, and one of them at the side. The address has the filter and which job is open. */
export function jobs(main, context) {
  const { state } = context;
  let { values } = context;
  const filters = h('form', { class: 'filters', role: 'search', 'aria-label': 'Filter jobs', submit: (event) => event.preventDefault() });
  const body = h('tbody'), note = h('div'), more = h('div');
  const table = h('table', { class: 'jobs' },
    h('thead', {}, h('tr', {}, ['Job', 'State', 'Worker', 'Needs', 'Attempt', 'Age', 'Ran'].map((name) => h('th', { scope: 'col' }, name)))), body);
  main.append(h('div', { class: 'heading' }, h('h1', {}, 'Jobs'), filters), note, table, more);
  const { namespace, state: wanted, worker, text, rows } = values;
  let side = sidebar(values, context.set);
  const stop = follow('jobs', { namespace, state: wanted, worker, text, rows }, ({ head, items }) => {
    table.hidden = items.length === 0;
    if (!filters.contains(document.activeElement)) filters.replaceChildren(...controls(context, head));
    offer(head.namespaces ?? []);
    note.replaceChildren(...(items.length ? [] : [nothing(head, values)]));
    keyed(body, items, (job) => row(job, values));
    more.replaceChildren(...(head.more ? [next(context, items.length)] : []));
    side.changed(items);
  }, (problem) => {
    table.hidden = true;
    filters.replaceChildren();
    body.replaceChildren();
    note.replaceChildren(refusal(problem));
  }, state);
  const leave = () => {
    stop();
    side.close();
  };
  // Another job at the side is no reason to read the list again.
  leave.moved = (next) => {
    const rest = (of) => JSON.stringify({ ...of, open: undefined });
    if (rest(next) !== rest(values)) return false;
    const before = values.open;
    values = next;
    side.close();
    side = sidebar(values, context.set);
    for (const tr of body.children) tr.classList.toggle('open', tr.dataset.key === values.open);
    if (!values.open) body.querySelector(`[data-focus="${CSS.escape(before ?? '')}"]`)?.focus();
    return true;
  };
  return leave;
}

function offer(namespaces) {
  document.getElementById('namespaces').replaceChildren(...namespaces.map((name) => h('option', { value: name })));
}

function controls({ values, set }, head) {
  const states = Object.entries(head.counts).sort(([a], [b]) => a.localeCompare(b));
  if (values.state && !head.counts[values.state]) states.push([values.state, 0]);
  const filtered = values.state || values.worker || values.text;
  const all = states.reduce((sum, [, count]) => sum + count, 0);
  return [
    h('select', { 'aria-label': 'State', change: (event) => set({ state: event.target.value, open: '' }) },
      h('option', { value: '' }, `All states (${all})`),
      states.map(([name, count]) => h('option', { value: name, selected: name === values.state }, `${name} (${count})`))),
    input('Worker', 'worker', values.worker, set),
    input('Name', 'text', values.text, set),
    filtered && h('button', { type: 'button', click: () => set({ state: '', worker: '', text: '', open: '' }) }, 'All jobs'),
  ].filter(Boolean);
}

const input = (label, name, value, set) => h('input', {
  type: 'search', placeholder: label, 'aria-label': label, value: value ?? '', size: 14, autocomplete: 'off', spellcheck: 'false',
  change: (event) => set({ [name]: event.target.value.trim(), open: '' }),
});

function nothing(head, values) {
  if (head.total > 0) return notice('No job matches', `None of ${head.total} jobs passes the filter. Choose another state, worker or name.`);
  return notice('No jobs', values.namespace ? `There are no TrainJobs in namespace ${values.namespace}.` : 'There are no TrainJobs.',
    h('p', {}, 'A TrainJob for Trainyard is an ordinary TrainJob with this field:'), h('pre', {}, 'spec:\n  managedBy: kueue.x-k8s.io/multikueue'));
}

function next({ set }, shown) {
  if (shown >= mostRows) return h('p', { class: 'muted' }, `The newest ${shown}. Choose a namespace, a state or a name to see others.`);
  const rows = Math.min(mostRows, shown + usualRows);
  return h('button', { type: 'button', click: () => set({ rows }) }, `Show ${rows}`);
}

function row(job, values) {
  const open = `${job.namespace}/${job.name}`;
  const ran = job.running && duration(job);
  return h('tr', { class: values.open === open ? 'open' : undefined, 'data-key': open },
    h('th', { scope: 'row' }, h('a', { href: address('jobs', { ...values, open }), 'data-focus': open }, job.name), h('span', { class: 'muted' }, job.namespace)),
    cell('State', pill(job.tone, job.state, job.why), job.why && h('span', { class: 'muted' }, job.why), job.percent !== undefined && h('span', { class: 'muted' }, `${job.percent}%`)),
    cell('Worker', job.worker), cell('Needs', job.needs),
    cell('Attempt', job.attempt ? String(job.attempt) : '', job.restarts ? h('span', { class: 'muted' }, `${job.restarts} restarts`) : ''),
    cell('Age', age(job.created)), cell('Ran', ran));
}

const cell = (name, ...content) => h('td', { 'data-name': name }, content);

function duration(job) {
  if (!job.ended) return age(job.running);
  const minutes = Math.max(0, Math.round((new Date(job.ended) - new Date(job.running)) / 60000));
  return minutes < 1 ? '<1m' : minutes < 180 ? `${minutes}m` : `${Math.round(minutes / 60)}h`;
}

/** sidebar shows the job that the address names. It reads the job again when its row has changed. */
function sidebar(values, set) {
  if (!values.open) return { changed() {}, close() {} };
  const [namespace, name] = values.open.split('/');
  const view = jobView({ namespace, name });
  const close = () => set({ open: '' });
  const escape = (event) => { if (event.key === 'Escape') close(); };
  const panel = h('aside', { class: 'side', 'aria-label': `Job ${name}`, tabindex: '-1' },
    h('div', { class: 'side-top' }, h('a', { href: address('job', { namespace, name }) }, 'Open as a page'), h('button', { type: 'button', class: 'icon', 'aria-label': 'Close', title: 'Close (Esc)', click: close }, '✕')),
    view.element);
  document.getElementById('side').replaceChildren(panel);
  document.addEventListener('keydown', escape);
  panel.focus({ preventScroll: true });
  return {
    changed: (items) => view.changed(items.find((item) => item.key === values.open)?.version),
    close: () => {
      document.removeEventListener('keydown', escape);
      view.close();
      panel.remove();
    },
  };
}
