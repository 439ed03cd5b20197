// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"maps"
	"sync"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/dispatch/expressions"
)

// compiled keeps the expressions of policies by their text, so that each is compiled once, and not for each decision.
// The zero value is ready for use.
type compiled struct {
	accelerators accelerators.Table

	mu sync.Mutex
	// byText under mu.
	byText map[string]outcome
}

// outcome of a compilation: one of the two.
type outcome struct {
	expression *remembering
	fault      error
}

// of makes policies ready for decisions. The caller passes all policies: expressions that no policy has are dropped.
func (c *compiled) of(policies []v1alpha1.DispatchPolicy) []dispatch.Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	ready, texts := make([]dispatch.Policy, len(policies)), 0
	for i := range policies {
		ready[i].DispatchPolicy = &policies[i]
		text := policies[i].Spec.Clusters.Expression
		if text == "" {
			continue
		}
		texts++
		if o := c.compile(text); o.expression != nil {
			ready[i].Expression = o.expression
		} else {
			ready[i].Fault = o.fault
		}
	}
	if len(c.byText) > texts {
		used := make(map[string]bool, texts)
		for i := range policies {
			used[policies[i].Spec.Clusters.Expression] = true
		}
		maps.DeleteFunc(c.byText, func(text string, _ outcome) bool { return !used[text] })
	}
	return ready
}

// compile compiles a text that is new. The caller holds mu.
func (c *compiled) compile(text string) outcome {
	o, known := c.byText[text]
	if known {
		return o
	}
	if expression, err := expressions.Compile(text); err != nil {
		o.fault = err
	} else {
		o.expression = &remembering{expression: expression.Counting(c.accelerators)}
	}
	if c.byText == nil {
		c.byText = map[string]outcome{}
	}
	c.byText[text] = o
	return o
}

// maxKinds is for how many kinds of jobs the answers of an expression are remembered.
const maxKinds = 256

// remembering asks an expression about each worker and each kind of job once, until the worker changes. Jobs are of a
// kind if the expression cannot tell them apart.
type remembering struct {
	expression *expressions.Expression

	mu sync.Mutex
	// answers by kind of job, under mu.
	answers map[string]map[v1alpha1.ClusterName]answer
}

// answer about a worker as it was at a revision.
type answer struct {
	revision uint64
	admitted bool
	err      error
}

// For implements dispatch.Expression.
func (r *remembering) For(job *dispatch.Job) func(*dispatch.Worker) (bool, error) {
	ask, answers := r.expression.For(job), r.about(r.expression.Key(job))
	return func(worker *dispatch.Worker) (bool, error) {
		r.mu.Lock()
		known := answers[worker.Name]
		r.mu.Unlock()
		if worker.Revision != 0 && known.revision == worker.Revision {
			return known.admitted, known.err
		}
		admitted, err := ask(worker)
		r.mu.Lock()
		answers[worker.Name] = answer{revision: worker.Revision, admitted: admitted, err: err}
		r.mu.Unlock()
		return admitted, err
	}
}

// Reads implements dispatch.Expression.
func (r *remembering) Reads(worker *dispatch.Worker) string { return r.expression.Reads(worker) }

// about returns the answers for one kind of jobs.
func (r *remembering) about(kind string) map[v1alpha1.ClusterName]answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	answers := r.answers[kind]
	if answers == nil {
		if len(r.answers) >= maxKinds || r.answers == nil {
			r.answers = map[string]map[v1alpha1.ClusterName]answer{} // A kind that comes again is asked again.
		}
		answers = map[v1alpha1.ClusterName]answer{}
		r.answers[kind] = answers
	}
	return answers
}

// keyOf is equal for jobs that the expression of their policy cannot tell apart.
func keyOf(expression dispatch.Expression, job *dispatch.Job) string {
	if r, ok := expression.(*remembering); ok {
		return r.expression.Key(job)
	}
	return ""
}
