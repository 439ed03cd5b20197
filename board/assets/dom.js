// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// What the pages are built of. Words of users, workers and logs come only through text nodes and attributes: nothing here
// parses markup, and the Content-Security-Policy forbids it.

const svgSpace = 'http://www.w3.org/2000/svg';

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false && c !== ''));
  return element;
}

/** h makes an element of HTML. A function among the attributes is a listener. */
export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/** s makes an element of SVG. */
export const s = (tag, attributes, ...children) => build(document.createElementNS(svgSpace, tag), attributes, children);

const icons = { good: '✓', active: '▶', waits: '◔', bad: '!', quiet: '–' };

/** pill shows a state with a colour, a sign and a word. */
export function pill(tone, word, title) {
  return h('span', { class: `pill ${tone}`, title }, h('span', { 'aria-hidden': 'true' }, icons[tone] ?? '–'), word);
}

/** address is the address of a page of the board. Empty values are left out. */
export function address(page, values = {}) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  return query.size ? `${page}?${query}` : page;
}

/** duration says in a few letters how long something takes, as kubectl does. */
export function duration(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
  if (seconds < 120) return `${seconds}s`;
  if (minutes < 10) return seconds % 60 ? `${minutes}m${seconds % 60}s` : `${minutes}m`;
  if (minutes < 180) return `${minutes}m`;
  if (hours < 8) return minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  return hours < 48 ? `${hours}h` : `${days}d`;
}

/** age shows how long ago a time is, and goes on. */
export function age(time, after = '') {
  if (!time) return '';
  const element = h('time', { datetime: time, title: new Date(time).toLocaleString(), 'data-after': after });
  tick(element);
  return element;
}

function tick(element) {
  const text = duration(Date.now() - new Date(element.dateTime)) + element.dataset.after;
  if (element.textContent !== text) element.textContent = text;
}

setInterval(() => document.querySelectorAll('time[data-after]').forEach(tick), 5000);

/** keyed makes the children of a container those of some items. It changes only what has changed, so that focus stays. */
export function keyed(container, items, render) {
  const known = container.known ?? new Map(), next = new Map();
  items.forEach((item, at) => {
    let entry = known.get(item.key);
    if (entry?.item !== item) {
      const element = render(item);
      const focused = entry?.element.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
      entry?.element.replaceWith(element);
      entry = { item, element };
      if (focused) element.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
    }
    next.set(item.key, entry);
    if (container.children[at] !== entry.element) container.insertBefore(entry.element, container.children[at] ?? null);
  });
  while (container.children.length > items.length) container.lastElementChild.remove();
  container.known = next;
}

/** notice says why there is nothing to see, and what to do. */
export function notice(title, text, ...more) {
  return h('section', { class: 'notice' }, h('h2', {}, title), text && h('p', {}, text), more);
}

/** refusal shows a problem that the server has told. */
export function refusal(problem) {
  return h('section', { class: 'notice refused', role: 'alert' },
    h('h2', {}, problem.lacks ? 'You may not see this' : 'This cannot be shown'),
    h('p', {}, problem.error),
    problem.lacks && h('ul', {}, problem.lacks.map((right) => h('li', {}, h('code', {}, right)))),
    problem.todo && h('p', {}, h('strong', {}, 'What to do: '), problem.todo));
}

/** say tells a screen reader what has happened. */
export function say(text) {
  document.getElementById('told').textContent = text;
}

/** copyButton copies a text. */
export function copyButton(text, what) {
  return h('button', {
    type: 'button', class: 'small', 'aria-label': `Copy: ${what}`,
    click: async (event) => {
      const button = event.currentTarget;
      let done = 'Copied';
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        done = 'Not allowed';
      }
      button.textContent = done;
      say(`${done}: ${what}`);
      setTimeout(() => { button.textContent = 'Copy'; }, 2000);
    },
  }, 'Copy');
}
