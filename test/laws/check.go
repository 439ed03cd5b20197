// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package laws

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// Check returns nil if the API server may show the step from before to after: no change, or one transition of the
// table. Nil stands for no Dispatch. A Dispatch with another UID is another Dispatch: the first is gone, and the second
// was created.
func Check(before, after *v1alpha1.Dispatch) error {
	if before != nil && after != nil && before.UID != after.UID {
		return errors.Join(Check(before, nil), Check(nil, after))
	}
	c := change{before: before, after: after, from: record.StateOf(before), to: record.StateOf(after)}
	if c.saysNothing() {
		return nil
	}
	for _, law := range laws {
		if wrong := law(c); wrong != "" {
			return c.error(wrong)
		}
	}
	wrong := "there is no such transition"
	for _, transition := range record.Between(c.from, c.to) {
		if wrong = allows(transition, c); wrong == "" {
			return nil
		}
	}
	return c.error(wrong)
}

// change is one step of a Dispatch.
type change struct {
	before, after *v1alpha1.Dispatch
	from, to      record.State
}

// rule returns what is wrong with a change, empty if nothing is.
type rule func(change) string

func (c change) error(wrong string) error {
	d := c.after
	if d == nil {
		d = c.before
	}
	return fmt.Errorf("dispatch %s/%s, attempt %d, from %s to %s: %s", d.Namespace, d.Name, d.Spec.Attempt, c.from, c.to, wrong)
}

// saysNothing is true if spec, status, state and our finalizer are unchanged. Everybody may write labels and the like.
func (c change) saysNothing() bool {
	if c.before == nil || c.after == nil {
		return c.before == c.after
	}
	return !c.specChanged() && !c.statusChanged() && c.from == c.to && record.IsGuarded(c.before) == record.IsGuarded(c.after)
}

func (c change) specChanged() bool {
	return c.before != nil && c.after != nil && !equality.Semantic.DeepEqual(c.before.Spec, c.after.Spec)
}

func (c change) statusChanged() bool {
	return c.before != nil && c.after != nil && !equality.Semantic.DeepEqual(c.before.Status, c.after.Status)
}

// isAdoption is true if the spec has got a later attempt with which a copy was found.
func (c change) isAdoption() bool {
	return c.after != nil && record.IsAdopted(c.after) &&
		c.after.Spec.Cluster != "" && (c.before == nil || c.after.Spec.Attempt > c.before.Spec.Attempt)
}
