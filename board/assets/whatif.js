// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

import { h, notice, pill, refusal } from './dom.js';
import { ask } from './live.js';
import { lines } from './queue.js';

const example = `apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: try
spec:
  managedBy: kueue.x-k8s.io/multikueue
  runtimeRef:
    name: torch-distributed
  trainer:
    numNodes: 2
    resourcesPerNode:
      limits:
        nvidia.com/gpu: 8
`;

let kept = '';

/** whatIf says where a pasted TrainJob would run. Nothing is created. */
export function whatIf(main, { values, state }) {
  state('still');
  const text = h('textarea', { id: 'manifest', rows: 18, spellcheck: 'false', autocomplete: 'off', input: () => { kept = text.value; } });
  text.value = kept || example;
  const results = h('div', { 'aria-live': 'polite' }), button = h('button', { type: 'submit', class: 'main' }, 'Try it');
  const form = h('form', {
    class: 'whatif',
    submit: async (event) => {
      event.preventDefault();
      button.disabled = true;
      results.replaceChildren(h('p', { class: 'muted' }, 'Deciding …'));
      try {
        const outcome = await ask('whatif', { namespace: values.namespace }, { method: 'POST', body: text.value, headers: { 'Content-Type': 'application/yaml' } });
        results.replaceChildren(...(outcome.notes ?? []).map((note) => h('p', { class: 'note' }, note)), ...outcome.results.map(result));
      } catch (error) {
        results.replaceChildren(refusal(error.told ?? { error: String(error) }));
      }
      button.disabled = false;
    },
  }, h('label', { for: 'manifest' }, 'TrainJobs, in YAML or JSON'), text, h('div', {}, button));
  main.append(h('div', { class: 'heading' }, h('h1', {}, 'What if')),
    h('p', { class: 'muted' }, 'Says on which worker a new job would run now, or why it would have to wait. The decision is that of the hub, and nothing is created.'),
    h('div', { class: 'columns' }, form, results));
  results.append(notice('Not tried yet', 'Paste a TrainJob, and try it. Policies, runtimes and workers can be tried with kubectl trainyard simulate.'));
}

function result(r) {
  return h('section', { class: `card ${r.placed ? 'good' : 'waits'}` },
    h('header', {}, h('h2', {}, r.name), pill(r.placed ? 'good' : 'waits', r.placed ? 'Would run' : 'Would wait')),
    h('p', {}, r.headline), h('dl', { class: 'details wide' }, r.details.map((fact) => [h('dt', {}, fact.name), h('dd', {}, fact.value)])),
    r.workers?.length > 0 && lines(r.workers));
}
