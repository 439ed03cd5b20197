// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

import { age, copyButton, h, notice, pill, refusal } from './dom.js';
import { ask, follow } from './live.js';
import { logs } from './logs.js';
import { timeline } from './timeline.js';

/** jobPage shows one job. */
export function jobPage(main, { values, state }) {
  const key = { namespace: values.namespace, name: values.name };
  if (!key.name) {
    main.append(h('h1', {}, 'Job'), notice('No job is named', 'Open one on the page of jobs.'));
    state('still');
    return undefined;
  }
  const view = jobView(key);
  main.append(view.element);
  const stop = follow('jobs', key, ({ items }) => view.changed(items[0]?.version), () => view.changed(), state);
  return () => {
    stop();
    view.close();
  };
}

/**
 * jobView shows everything about a job: {element, changed, close}. changed(version) reads the job again if the version is
 * another one.
 */
export function jobView(key) {
  const element = h('div', { class: 'job' }), head = h('div'), panels = h('div');
  let last, shown, busy = false, due = false;
  const log = logs(key);
  const tabs = tabList(['Overview', 'Timeline', 'Events', 'Logs', 'Commands'], draw);
  element.append(head, tabs.element, panels);

  async function read() {
    busy = true;
    due = false;
    try {
      shown = await ask('job', key);
      draw(tabs.current());
    } catch (error) {
      shown = undefined;
      head.replaceChildren(h('h1', {}, key.name));
      panels.replaceChildren(refusal(error.told ?? { error: String(error) }));
    }
    busy = false;
    if (due) setTimeout(read, 1000); // Jobs that change all the time are not read all the time.
  }

  function draw(tab) {
    if (!shown) return;
    head.replaceChildren(h('div', { class: 'heading' }, h('h1', {}, shown.name), pill(shown.tone, shown.state)),
      h('p', { class: 'muted' }, `${shown.namespace} · ${shown.headline}`), steps(shown.steps));
    if (tab === 'Logs') {
      if (!panels.contains(log.element)) panels.replaceChildren(log.element);
      log.open();
      return;
    }
    log.pause();
    const open = new Set([...panels.querySelectorAll('details[open]')].map((d) => d.dataset.name));
    panels.replaceChildren(...tabs.panel({ Overview: overview, Timeline: () => timeline(shown.spans), Events: events, Commands: commands }[tab](shown)));
    panels.querySelectorAll('details').forEach((d) => { if (open.has(d.dataset.name)) d.open = true; });
  }

  read();
  return {
    element,
    changed(version) {
      if (version === last) return;
      const first = last === undefined;
      last = version;
      if (busy) due = !first;
      else read();
    },
    close: () => log.pause(),
  };
}

/** tabList is a list of tabs, which arrow keys change. */
function tabList(names, choose) {
  let current = names[0];
  const element = h('div', { role: 'tablist', class: 'tabs', 'aria-label': 'About the job' });
  const select = (name) => {
    current = name;
    for (const tab of element.children) {
      const on = tab.textContent === name;
      tab.setAttribute('aria-selected', on);
      tab.tabIndex = on ? 0 : -1;
    }
    choose(name);
  };
  names.forEach((name, at) => element.append(h('button', {
    type: 'button', role: 'tab', 'aria-selected': String(at === 0), tabindex: at === 0 ? 0 : -1, click: () => select(name),
    keydown: (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const next = (at + by + names.length) % names.length;
      select(names[next]);
      element.children[next].focus();
    },
  }, name)));
  return { element, current: () => current, panel: (content) => [h('div', { role: 'tabpanel', 'aria-label': current, tabindex: 0 }, content)] };
}

function steps(all) {
  if (!all?.length) return '';
  const tones = { Running: 'active', Succeeded: 'good', Failed: 'bad', Waiting: 'waits', Stopped: 'quiet' };
  return h('ol', { class: 'steps', 'aria-label': 'Steps' }, all.map((step) => h('li', {}, pill(tones[step.state] ?? 'quiet', `${step.name}: ${step.state}`))));
}

const inHead = ['Name', 'Namespace', 'State'];

function overview(job) {
  return [
    h('dl', { class: 'details wide' }, job.details.filter((fact) => !inHead.includes(fact.name)).map((fact) => [
      h('dt', { class: fact.name === 'To Do' ? 'todo' : undefined }, fact.name), h('dd', {}, fact.value)])),
    (job.tables ?? []).map(tableOf)];
}

/** tableOf shows a table of the plugin without the columns in which no row has a value. */
function tableOf({ name, columns, rows }) {
  const shown = columns.map((_, at) => at).filter((at) => rows.some((row) => !['<none>', '<unknown>', ''].includes(String(row[at]))));
  return h('section', {}, h('h2', {}, name), h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': name }, h('table', { class: 'lines' },
    h('thead', {}, h('tr', {}, shown.map((at) => h('th', { scope: 'col' }, columns[at])))),
    h('tbody', {}, rows.map((row) => h('tr', {}, shown.map((at) => h(at ? 'td' : 'th', at ? {} : { scope: 'row' }, String(row[at])))))))));
}

function events(job) {
  if (job.noEvents) return notice('Events are not shown', job.noEvents);
  if (!job.events?.length) return notice('No Events', 'Kubernetes drops Events after an hour. The overview has what is on record.');
  return h('ol', { class: 'events' }, job.events.map((event) => h('li', {},
    h('div', {}, pill(event.warning ? 'bad' : 'quiet', event.reason), h('span', { class: 'muted' }, age(event.last, ' ago'), event.count > 1 && ` · ${event.count} times`, event.from && ` · ${event.from}`)),
    h('p', {}, event.message))));
}

function commands(job) {
  return h('ul', { class: 'commands' }, job.commands.map((command) => h('li', {},
    h('span', {}, command.what), h('div', {}, h('code', {}, command.text), copyButton(command.text, command.what)))));
}
