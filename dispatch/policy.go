// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Policy is a DispatchPolicy that is ready for use.
type Policy struct {
	*v1alpha1.DispatchPolicy
	// Expression is the compiled spec.clusters.expression, if the policy has one. Package expressions compiles it.
	Expression Expression
	// Fault is why the expression could not be compiled.
	Fault error
}

// Rules returns the spec with its defaults. p may be nil.
func (p *Policy) Rules() v1alpha1.DispatchPolicySpec {
	if p == nil {
		p = &Policy{}
	}
	return p.DispatchPolicy.Rules()
}

// Expression decides on which workers a job may run. It must be a function of job and worker.
type Expression interface {
	// For prepares the expression for one job. The returned function is called for one worker after another. It returns an
	// error if it does not know the answer, and then the answer is no.
	For(job *Job) func(worker *Worker) (admitted bool, err error)
	// Reads says in words which values of a worker the expression reads, empty if it reads none that can be shown.
	Reads(worker *Worker) string
}

// Faults returns all faults of the policy, in the order of its fields, or nil. A policy with a fault admits no worker.
func (p Policy) Faults() []error {
	var faults []error
	add := func(field string, s *metav1.LabelSelector) {
		if _, err := selector(s); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", field, err))
		}
	}
	add(namespaceSelectorField, p.Spec.Jobs.NamespaceSelector)
	add(jobSelectorField, p.Spec.Jobs.Selector)
	add(clusterSelectorField, p.Spec.Clusters.Selector)
	if err := p.expressionFault(); err != nil {
		faults = append(faults, err)
	}
	if rules := p.Rules(); rules.Runtime == v1alpha1.RuntimePin && !*rules.Propagate.Runtimes {
		faults = append(faults, fmt.Errorf("spec.runtime: Pin makes runtimes on workers, which spec.propagate.runtimes forbids: "+
			"it has to be true, or spec.runtime Any or Same"))
	}
	// The CRD does not check these: inside a list, the rule would be too expensive for the API server.
	for i := range p.Spec.Scoring {
		for _, name := range slices.Sorted(maps.Keys(p.Spec.Scoring[i].Ceiling)) {
			if price := p.Spec.Scoring[i].Ceiling[name]; price.Sign() < 0 {
				faults = append(faults, fmt.Errorf("spec.scoring[%d].ceiling[%s]: a price must not be negative", i, name))
			}
		}
	}
	return faults
}

// The fields that can have a fault.
const (
	expressionField        = "spec.clusters.expression"
	clusterSelectorField   = "spec.clusters.selector"
	namespaceSelectorField = "spec.jobs.namespaceSelector"
	jobSelectorField       = "spec.jobs.selector"
)

// expressionFault is why the expression cannot be used. An expression that was not compiled admits no worker.
func (p Policy) expressionFault() error {
	switch {
	case p.Fault != nil:
		return fmt.Errorf("%s: %w", expressionField, p.Fault)
	case p.Spec.Clusters.Expression != "" && p.Expression == nil:
		return fmt.Errorf("%s: it has not been compiled", expressionField)
	}
	return nil
}

// SelectPolicy returns the policy of a job. Of the policies that match the labels of the job and of its namespace, it
// is the one with the highest priority. Among equal priorities, the first name wins. Without any policy it returns nil,
// and the job may go everywhere. If there are policies and none matches, ok is false, and the job may go nowhere.
//
// It fails if a policy with an invalid selector could win, because nobody knows whether that policy matches. The error
// names the policy. A policy with an invalid selector that is outranked does no harm.
func SelectPolicy(policies []Policy, job Job) (policy *Policy, ok bool, err error) {
	for i := range policies {
		candidate := &policies[i]
		if policy != nil && !outranks(candidate, policy) {
			continue
		}
		matches, fault := matchesJob(candidate, job)
		if fault != nil || matches {
			policy, err = candidate, fault
		}
	}
	if err != nil {
		return nil, false, err
	}
	return policy, policy != nil || len(policies) == 0, nil
}

func outranks(a, b *Policy) bool {
	return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Name, b.Name)) < 0
}

func matchesJob(policy *Policy, job Job) (bool, error) {
	jobs := policy.Spec.Jobs
	namespaces, err := selector(jobs.NamespaceSelector)
	if err != nil {
		return false, fmt.Errorf("DispatchPolicy %q: %s: %w", policy.Name, namespaceSelectorField, err)
	}
	if !namespaces.Matches(labels.Set(job.NamespaceLabels)) {
		return false, nil
	}
	selected, err := selector(jobs.Selector)
	if err != nil {
		return false, fmt.Errorf("DispatchPolicy %q: %s: %w", policy.Name, jobSelectorField, err)
	}
	return selected.Matches(labels.Set(job.Labels)), nil
}

// clusterSelector returns the selector of the workers that the policy allows. A nil policy allows all.
func clusterSelector(policy *Policy) (labels.Selector, error) {
	if policy == nil {
		return labels.Everything(), nil
	}
	if faults := policy.Faults(); len(faults) > 0 {
		messages := make([]string, len(faults))
		for i := range faults {
			messages[i] = faults[i].Error()
		}
		return nil, fmt.Errorf("DispatchPolicy %q: %s", policy.Name, strings.Join(messages, "; "))
	}
	return selector(policy.Spec.Clusters.Selector)
}

// maxPin is the most bytes that a pin may have. Every worker is checked against the pin.
const maxPin = 4096

// pinOf returns the selector of the workers to which the job pins itself.
func pinOf(job Job) (labels.Selector, error) {
	text, pinned := job.Annotations[v1alpha1.AnnotationClusters]
	if !pinned {
		return labels.Everything(), nil
	}
	pin, err := parsePin(text)
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", v1alpha1.AnnotationClusters, err)
	}
	return pin, nil
}

// CheckPin says what is wrong with the value of the annotation v1alpha1.AnnotationClusters.
func CheckPin(text string) error {
	_, err := parsePin(text)
	return err
}

func parsePin(text string) (labels.Selector, error) {
	if len(text) > maxPin {
		return nil, fmt.Errorf("it has %d bytes, and may have at most %d", len(text), maxPin)
	}
	return labels.Parse(text)
}

// selector converts a label selector of the API. nil selects everything.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}
