// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// learnParts reads of which JobSets objects are that Events are about, and returns the JobSets. What is gone by now
// belongs to none.
func (c *copies) learnParts(ctx context.Context, w *worker, namespace string, unknown map[about]bool) (map[jobSet]bool, error) {
	sets := map[jobSet]bool{}
	made := map[string]int{}
	for a := range unknown {
		set := jobSet{namespace: a.Namespace, name: a.Name, uid: a.UID}
		switch a.Kind {
		case kindJobSet:
			c.rememberPart(w, a.UID, set)
			sets[set] = true
		case trainer.TrainJobKind:
			if err := c.learnJobSetOf(ctx, w, a, sets); err != nil {
				return nil, err
			}
		default:
			made[a.Kind]++
		}
	}
	for kind, count := range made {
		if err := c.learnMade(ctx, w, namespace, kind, count >= manyUnknown, unknown, sets); err != nil {
			return nil, err
		}
	}
	for a := range unknown {
		if key := (ownerKey{clusterID: w.clusterID, jobSet: a.UID}); !c.has(key) {
			c.parts.Add(key, jobSet{}, foreignFor)
		}
	}
	return sets, nil
}

func (c *copies) has(key ownerKey) bool {
	_, known := c.parts.Get(key)
	return known
}

func (c *copies) rememberPart(w *worker, uid types.UID, set jobSet) {
	c.parts.Add(ownerKey{clusterID: w.clusterID, jobSet: uid}, set, ownedFor)
}

// learnJobSetOf reads the JobSet of a copy: it has the same name. An Event about a copy without one is not shown.
func (c *copies) learnJobSetOf(ctx context.Context, w *worker, a about, sets map[jobSet]bool) error {
	found, err := w.metadata.Resource(jobSets).Namespace(a.Namespace).Get(ctx, a.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("worker %q does not show JobSet %s/%s: %w", w.name, a.Namespace, a.Name, err)
	}
	if controller := trainJobOf(found); controller == nil || controller.UID != a.UID {
		return nil
	}
	set := jobSet{namespace: a.Namespace, name: a.Name, uid: found.UID}
	c.rememberPart(w, a.UID, set)
	sets[set] = true
	return nil
}

// learnMade reads Jobs or pods: those of the namespace, or each by its name.
func (c *copies) learnMade(
	ctx context.Context, w *worker, namespace, kind string, all bool, unknown map[about]bool, sets map[jobSet]bool,
) error {
	take := func(found *metav1.PartialObjectMetadata) {
		if set, ok := jobSetOf(found.Namespace, found.Labels); ok {
			c.rememberPart(w, found.UID, set)
			if c.mayShow(ctx, w.name, set) {
				sets[set] = true
			}
		}
	}
	if all {
		return eachPage(ctx, w, partKinds[kind], namespace, metav1.ListOptions{LabelSelector: jobsetv1alpha2.JobSetUIDKey}, take)
	}
	for a := range unknown {
		if a.Kind != kind {
			continue
		}
		if err := eachPage(ctx, w, partKinds[kind], a.Namespace, metav1.ListOptions{FieldSelector: named(a.Name)}, take); err != nil {
			return err
		}
	}
	return nil
}

// ofDispatch returns the UID of the copy of a job's present attempt, empty if there is none.
func (c *copies) ofDispatch(ctx context.Context, w *worker, d *v1alpha1.Dispatch) (types.UID, error) {
	if d.Status.CopyUID != "" && d.Status.Attempt == d.Spec.Attempt {
		return d.Status.CopyUID, nil
	}
	copy, err := w.metadata.Resource(trainJobs).Namespace(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("worker %q does not show TrainJob %s/%s: %w", w.name, d.Namespace, d.Name, err)
	}
	if of := c.marksOf(copy); of.isOf(d) {
		return of.copyUID, nil
	}
	return "", nil
}
