// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/hub"
	"github.com/trainyard/trainyard/views/output"
)

// maxListed is how many copies the status of a WorkerCluster lists.
const maxListed = 64

// Annotation returns the annotation of the WorkerCluster with which an admin decides about a copy.
func Annotation(copy v1alpha1.UnknownCopy) string {
	return v1alpha1.AnnotationDecisionPrefix + string(copy.UID)
}

// Find returns the unknown copy with this name. If there is none, the error names the most similar name.
func Find(worker *v1alpha1.WorkerCluster, key types.NamespacedName) (v1alpha1.UnknownCopy, error) {
	var names []string
	for _, c := range worker.Status.UnknownCopies {
		if keyOf(c) == key {
			return c, nil
		}
		names = append(names, keyOf(c).String())
	}
	err := fmt.Errorf("worker %q has no copy %q that the hub has no record of%s", worker.Name, key, hub.DidYouMean(key.String(), names))
	if isCut(worker) {
		err = fmt.Errorf("%w; there may be more than the %d that are listed: decide about those first", err, maxListed)
	}
	return v1alpha1.UnknownCopy{}, err
}

// Names returns "namespace/name" of a worker's unknown copies.
func Names(worker *v1alpha1.WorkerCluster) []string {
	var names []string
	for _, c := range worker.Status.UnknownCopies {
		names = append(names, keyOf(c).String())
	}
	return names
}

// IsSettled is true if a copy is not unknown any more on its worker.
func IsSettled(worker *v1alpha1.WorkerCluster, copy v1alpha1.UnknownCopy) bool {
	for _, c := range worker.Status.UnknownCopies {
		if c.UID == copy.UID {
			return false
		}
	}
	// The list is sorted by namespace and name, so another copy can push the last one out.
	return !isCut(worker) || before(copy, worker.Status.UnknownCopies[maxListed-1])
}

// Table shows the unknown copies of some workers.
func Table(workers []v1alpha1.WorkerCluster) *metav1.Table {
	table := output.NewTable(output.Column{Name: "Worker"}, output.Column{Name: "Namespace"}, output.Column{Name: "Name"},
		output.Column{Name: "Attempt"}, output.Column{Name: "Decision"}, output.Column{Name: "UID", Wide: true},
		output.Column{Name: "Origin-UID", Wide: true})
	for i := range workers {
		worker := &workers[i]
		for _, c := range worker.Status.UnknownCopies {
			output.Add(table, worker.Name, c.Namespace, c.Name, c.Attempt, output.Or(worker.Annotations[Annotation(c)], output.None),
				c.UID, c.OriginUID)
		}
	}
	return table
}

func keyOf(c v1alpha1.UnknownCopy) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}

func before(a, b v1alpha1.UnknownCopy) bool {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
}

func isCut(worker *v1alpha1.WorkerCluster) bool { return len(worker.Status.UnknownCopies) >= maxListed }

// Outcome says what has become of a copy after an admin's decision. dispatch is the Dispatch of the copy's name, or
// nil. The error says that something else than the decision has happened.
func Outcome(
	worker *v1alpha1.WorkerCluster, copy v1alpha1.UnknownCopy, decision v1alpha1.CopyDecision, dispatch *v1alpha1.Dispatch,
) (string, error) {
	key := keyOf(copy)
	switch decision {
	case v1alpha1.DecisionRelease:
		return fmt.Sprintf("trainjob %s released: it is one of worker %s's own now, and runs on", key, worker.Name), nil
	case v1alpha1.DecisionDelete:
		return fmt.Sprintf("trainjob %s deleted on worker %s", key, worker.Name), nil
	case v1alpha1.DecisionAdopt:
	}
	switch {
	case dispatch == nil:
		return "", fmt.Errorf("the copy of %s on worker %q is gone, and was not adopted: there is no Dispatch of its name", key, worker.Name)
	case dispatch.Spec.Cluster != v1alpha1.ClusterName(worker.Name):
		return "", fmt.Errorf("the copy of %s on worker %q is not unknown any more, and was not adopted: its job is %s",
			key, worker.Name, where(dispatch))
	}
	return fmt.Sprintf("trainjob %s adopted: it is on worker %s, attempt %d", key, worker.Name, dispatch.Spec.Attempt), nil
}

func where(d *v1alpha1.Dispatch) string {
	if d.Spec.Cluster == "" {
		return "waiting"
	}
	return fmt.Sprintf("on worker %q", d.Spec.Cluster)
}
