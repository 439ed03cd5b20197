// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// How pages get what they show, and what changes.

import { address } from './dom.js';

/** Problem is an answer that says why there is none. */
export class Problem extends Error {
  constructor(told, status) {
    super(told.error);
    this.told = told;
    this.status = status;
  }
}

/** ask gets an answer of the server as JSON. It throws a Problem. */
export async function ask(path, values, options) {
  let answer;
  try {
    answer = await fetch(`api/${address(path, values)}`, { credentials: 'same-origin', ...options });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem({ error: 'the board does not answer', todo: 'check that it still runs: kubectl trainyard board' }, 0);
  }
  if (answer.ok) return answer.json();
  throw await problemOf(answer);
}

/** problemOf reads why there is no answer. */
export async function problemOf(answer) {
  const text = await answer.text();
  try {
    return new Problem(JSON.parse(text), answer.status);
  } catch {
    return new Problem({ error: `the board answers ${answer.status}`, todo: 'open it again: kubectl trainyard board' }, answer.status);
  }
}

/**
 * follow calls show with a page whenever it changes: {head, items}. Items that have not changed are the same objects.
 * When there is no page, it calls fail with a problem, and tries again if that can help. It returns a function that ends it.
 */
export function follow(page, values, show, fail, state) {
  let source, timer, ended = false, items = new Map();

  const take = (change) => {
    if (change.whole) {
      const before = items;
      items = new Map(change.items.map((item) => [item.key, same(before.get(item.key), item)]));
    } else {
      for (const item of change.items) items.set(item.key, item);
      if (change.order) items = new Map(change.order.map((key) => [key, items.get(key)]));
    }
    show({ head: change.head, items: [...items.values()] });
  };

  const again = (seconds) => {
    source?.close();
    if (!ended) timer = setTimeout(begin, seconds * 1000);
  };

  const begin = async () => {
    try {
      take(await ask(page, values));
    } catch (error) {
      if (ended) return;
      const passes = error.status === 0 || error.status >= 500 || error.status === 429;
      state(passes ? 'off' : 'still');
      fail(error.told ?? { error: String(error) });
      if (passes) again(3);
      return;
    }
    if (ended || document.hidden) return;
    source = new EventSource(`api/stream/${address(page, values)}`);
    source.addEventListener('open', () => state('on'));
    source.addEventListener('page', (event) => take(JSON.parse(event.data)));
    source.addEventListener('refused', (event) => {
      fail(JSON.parse(event.data));
      again(10);
    });
    source.addEventListener('error', () => {
      state('off');
      again(2);
    });
  };

  // A browser opens six connections to a server. A tab that nobody sees leaves them to the others.
  const seen = () => {
    clearTimeout(timer);
    source?.close();
    if (!document.hidden) begin();
  };

  begin();
  document.addEventListener('visibilitychange', seen);
  return () => {
    ended = true;
    document.removeEventListener('visibilitychange', seen);
    clearTimeout(timer);
    source?.close();
  };
}

/** same keeps an object whose content is that of a new one. */
const same = (before, after) => (before && JSON.stringify(before) === JSON.stringify(after) ? before : after);
