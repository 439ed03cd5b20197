// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// The frame of the board: which page is shown, for which namespace, in which colours. The address says all of it but the
// colours.

import { address, h, refusal, say } from './dom.js';
import { fleet } from './fleet.js';
import { jobPage } from './job.js';
import { jobs } from './jobs.js';
import { ask } from './live.js';
import { queue } from './queue.js';
import { whatIf } from './whatif.js';

const pages = {
  fleet: { title: 'Fleet', render: fleet },
  queue: { title: 'Queue', render: queue },
  jobs: { title: 'Jobs', render: jobs },
  whatif: { title: 'What if', render: whatIf },
  job: { title: 'Job', render: jobPage, hidden: true },
};

const main = document.getElementById('main');
const live = h('span', { class: 'live' });
let me, shown, leave = () => {};

/** route is what the address says. */
function route() {
  const name = location.pathname.split('/').pop() || 'fleet';
  return { name: pages[name] ? name : 'fleet', values: Object.fromEntries(new URLSearchParams(location.search)) };
}

/** go opens a page, or changes the values of the present one. */
export function go(to, { replace = false } = {}) {
  history[replace ? 'replaceState' : 'pushState'](null, '', to);
  show(shown !== route().name);
}

function show(focus) {
  const { name, values } = route(), page = pages[name];
  if (!values.namespace && !me.all && name !== 'fleet') values.namespace = me.namespace;
  if (shown === name && leave.moved?.(values)) return;
  leave();
  shown = name;
  document.title = `${values.name ? `${values.name} · ` : ''}${page.title} · Trainyard`;
  navigation(name, values);
  document.getElementById('side').replaceChildren();
  main.replaceChildren();
  state('wait');
  leave = page.render(main, { me, values, go, state, set: (more) => go(address(name, { ...route().values, ...more }), { replace: true }) }) ?? (() => {});
  if (focus) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
    say(page.title);
  }
}

/** state says whether the page follows the hub. */
function state(now) {
  const [word, title] = {
    on: ['Live', 'The page changes with the hub.'], off: ['Not live', 'The page does not change now. It tries again.'],
    wait: ['Loading', 'The page is being read.'], still: ['', ''],
  }[now];
  live.className = `live ${now}`;
  live.textContent = word;
  live.title = title;
}

function navigation(current, values) {
  document.getElementById('pages').replaceChildren(...Object.entries(pages).filter(([, page]) => !page.hidden).map(([name, page]) => h('a', {
    href: address(name, name === 'fleet' ? {} : { namespace: values.namespace }), 'aria-current': name === current ? 'page' : name === 'jobs' && current === 'job' ? 'true' : undefined,
  }, page.title)));
  namespaces.hidden = current === 'fleet' || current === 'job' || me.fixed;
  namespaces.firstElementChild.value = values.namespace ?? '';
  namespaces.firstElementChild.placeholder = me.all ? 'All namespaces' : 'Namespace';
}

const namespaces = h('form', { submit: (event) => event.preventDefault() }, h('input', {
  'aria-label': 'Namespace', list: 'namespaces', autocomplete: 'off', spellcheck: 'false', size: 16,
  change: (event) => go(address(route().name, { ...route().values, namespace: event.target.value.trim(), open: '' })),
}), h('datalist', { id: 'namespaces' }));

const themes = { auto: 'Colours of the system', light: 'Light', dark: 'Dark' };

function theme(next) {
  let now = localStorage.getItem('theme') ?? 'auto';
  if (next) {
    const all = Object.keys(themes);
    now = all[(all.indexOf(now) + 1) % all.length];
    localStorage.setItem('theme', now);
  }
  document.documentElement.dataset.theme = now;
  const button = document.getElementById('theme');
  button.textContent = { auto: '◐', light: '☀', dark: '☾' }[now];
  button.title = button.ariaLabel = `Colours: ${themes[now]}. Change them.`;
}

document.addEventListener('click', (event) => {
  const link = event.target.closest('a[href]');
  const inside = link && link.origin === location.origin && pages[link.pathname.split('/').pop()] && !link.hash;
  if (!inside || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(link.href);
});
addEventListener('popstate', () => show(true));

async function start() {
  document.getElementById('tools').append(live, namespaces, h('button', { id: 'theme', type: 'button', class: 'icon', click: () => theme(true) }));
  theme(false);
  namespaces.hidden = true;
  try {
    me = await ask('me');
  } catch (error) {
    main.replaceChildren(refusal(error.told ?? { error: String(error) }));
    return;
  }
  show(false);
}

start();
