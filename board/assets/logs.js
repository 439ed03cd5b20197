// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

import { address, h, notice, refusal } from './dom.js';
import { ask, problemOf } from './live.js';

const mostLines = 5000;

/** logs shows the log of a container of a job: {element, open, pause}. It is read while it is open. */
export function logs(key) {
  const bar = h('div', { class: 'filters' }), note = h('div');
  const output = h('pre', { class: 'log', tabindex: 0, role: 'log', 'aria-live': 'off', 'aria-label': 'Log' });
  const element = h('div', { role: 'tabpanel', 'aria-label': 'Logs' }, bar, note, output);
  let reading, pods = [];

  const fail = (error) => {
    if (error.name === 'AbortError') return;
    output.hidden = true;
    note.replaceChildren(refusal(error.told ?? { error: String(error) }));
  };

  async function choose() {
    output.hidden = true;
    note.replaceChildren(h('p', { class: 'muted' }, 'Looking for pods …'));
    try {
      const found = await ask('pods', key, { signal: reading.signal });
      pods = found.pods;
      bar.replaceChildren();
      if (!pods.length) {
        note.replaceChildren(notice('No pods', found.whyNone || 'The job has no pods now. Its overview says why.'));
        return;
      }
      controls();
      await read(pods[0].name, pods[0].containers[0]);
    } catch (error) {
      fail(error);
    }
  }

  function controls() {
    const container = h('select', { 'aria-label': 'Container', change: again });
    const pod = h('select', { 'aria-label': 'Pod', change: () => { fill(); again(); } }, pods.map((p) =>
      h('option', { value: p.name }, `${p.name} (${[p.phase, p.worker || p.node, p.reason].filter(Boolean).join(', ')})`)));
    function fill() {
      container.replaceChildren(...pods.find((p) => p.name === pod.value).containers.map((name) => h('option', { value: name }, name)));
    }
    function again() {
      reading?.abort();
      reading = new AbortController();
      read(pod.value, container.value).catch(fail);
    }
    bar.replaceChildren(pod, container);
    fill();
  }

  async function read(pod, container) {
    output.replaceChildren();
    output.hidden = false;
    note.replaceChildren();
    const { signal } = reading;
    const answer = await fetch(`api/${address('log', { ...key, pod, container })}`, { signal, credentials: 'same-origin' });
    if (!answer.ok) throw await problemOf(answer);
    const text = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await text.read(); !part.done; part = await text.read()) append(part.value);
    append('\n— the log has ended —\n');
  }

  function append(text) {
    const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
    output.append(document.createTextNode(text));
    while (output.childNodes.length > mostLines) output.firstChild.remove();
    if (atEnd) output.scrollTop = output.scrollHeight;
  }

  return {
    element,
    open() {
      if (reading) return;
      reading = new AbortController();
      choose();
    },
    pause() {
      reading?.abort();
      reading = undefined;
    },
  };
}
