// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

import { age, duration, h, notice, pill, s } from './dom.js';

const tones = { Waiting: 'waits', Placed: 'quiet', Starting: 'quiet', Running: 'active' };
const ends = { Complete: 'good', Failed: 'bad', WorkerLost: 'bad', Rejected: 'bad' };

/** timeline draws a bar for each span of a job, below each other. */
export function timeline(spans) {
  if (!spans?.length) return notice('Nothing is on record', 'The hub has no times of this job.');
  const from = new Date(spans[0].from).getTime();
  const until = Math.max(...spans.map((span) => new Date(span.to ?? Date.now()).getTime()), from + 1000);
  return h('ol', { class: 'timeline' }, spans.map((span) => bar(span, from, until)));
}

function bar(span, from, until) {
  const begin = new Date(span.from).getTime(), end = new Date(span.to ?? Date.now()).getTime();
  const place = (time) => (100 * (time - from)) / (until - from);
  const where = [span.attempt && `attempt ${span.attempt}`, span.worker && `on ${span.worker}`].filter(Boolean).join(' ');
  const took = span.to ? duration(end - begin) : age(span.from);
  return h('li', {},
    h('div', { class: 'span-words' }, h('strong', {}, span.kind), h('span', { class: 'muted' }, where), h('span', {}, took, span.to ? '' : ' so far'),
      span.outcome && pill(ends[span.outcome] ?? 'waits', span.outcome)),
    s('svg', { class: `span ${tones[span.kind] ?? 'quiet'}`, role: 'img', 'aria-label': `${span.kind} from ${new Date(begin).toLocaleString()} for ${duration(end - begin)}` },
      s('rect', { class: 'ground', width: '100%', height: '100%', rx: 3 }),
      s('rect', { class: 'used', x: `${place(begin).toFixed(2)}%`, width: `${Math.max(0.6, place(end) - place(begin)).toFixed(2)}%`, height: '100%', rx: 3 })),
    span.message && h('p', { class: 'muted' }, span.message));
}
