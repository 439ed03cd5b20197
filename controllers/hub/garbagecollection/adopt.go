// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// adopter puts copies on one worker on record.
type adopter struct {
	here    judgement.Worker
	records records.Writer
	// demand is Options.Demand.
	demand   func(ctx context.Context, job *unstructured.Unstructured) (v1alpha1.DispatchSpec, error)
	recorder events.EventRecorder
}

// adopt puts a copy on record whose attempt is later than the hub knows, as after a restore from a backup. One write
// raises the Dispatch to the attempt of the copy. The job's copies on other workers are outdated then. The mirror
// writes the status, as for every copy.
func (a adopter) adopt(ctx context.Context, copy *unstructured.Unstructured, hub judgement.Seen) error {
	d := hub.Dispatch.DeepCopy()
	if d == nil {
		d = record.New(hub.Job, 0)
	}
	found := v1alpha1.DispatchSpec{
		Cluster: a.here.Name, ClusterID: a.here.ClusterID, Attempt: record.AttemptOn(copy), Failover: failoverOf(copy),
		LocalQueue: localQueueOf(copy), PodSets: d.Spec.PodSets, Priority: d.Spec.Priority, Checkpoint: trainjobs.CheckpointOf(copy),
		TranslatedInto: trainjobs.TranslatedInto(copy), Runtime: runtimeOf(copy),
	}
	a.fillDemand(ctx, hub.Job, copy, &found)
	fillDomain(copy, &found)
	record.Adopt(d, found)
	var err error
	if hub.Dispatch == nil {
		err = a.records.Create(ctx, d)
	} else {
		err = a.records.Patch(ctx, hub.Dispatch, d)
	}
	if err == nil {
		a.recordAdopted(hub.Job, d)
	}
	return err
}

// fillDemand fills in what the job needs. If that is not known, as without the runtime, only the job's pods are counted.
func (a adopter) fillDemand(ctx context.Context, job, copy *unstructured.Unstructured, found *v1alpha1.DispatchSpec) {
	if a.demand == nil {
		return
	}
	demand, err := a.demand(ctx, job)
	if err != nil {
		log.FromContext(ctx).Info("What an adopted job needs is not known", "dispatch", client.ObjectKeyFromObject(job), "reason", err.Error())
		return
	}
	found.PodSets, found.Priority, found.Dependencies = demand.PodSets, demand.Priority, dependenciesOf(copy, demand.Dependencies)
}

// dependenciesOf are what was brought to the worker for a copy, so that it is on record again: the record may be older than
// that. A worker writes its copies. So nothing counts unless the job names it and its policy brings it, and then the copy
// alone says what stays.
func dependenciesOf(copy client.Object, needed []v1alpha1.Dependency) []v1alpha1.Dependency {
	brought := v1alpha1.ParseDependencyNames(copy.GetAnnotations()[v1alpha1.AnnotationDependencies])
	for _, one := range brought {
		if !slices.Contains(needed, one) {
			return nil
		}
	}
	return brought
}

// fillDomain fills in the domain that the pods of a copy select.
func fillDomain(copy *unstructured.Unstructured, found *v1alpha1.DispatchSpec) {
	domain, jobs := trainjobs.DomainOf(copy)
	if domain == nil {
		return
	}
	found.Domain, found.PodSets = domain, (&v1alpha1.DispatchSpec{PodSets: found.PodSets}).DeepCopy().PodSets
	for i := range found.PodSets {
		if set := &found.PodSets[i]; slices.Contains(jobs, set.Name) {
			if set.NodeSelector == nil {
				set.NodeSelector = map[string]string{}
			}
			set.NodeSelector[domain.Label] = domain.Value
		}
	}
}

// localQueueOf is the LocalQueue that the label of a copy names, nil if there is no label.
func localQueueOf(copy client.Object) *string {
	if name, labelled := copy.GetLabels()[v1alpha1.LabelLocalQueue]; labelled {
		return &name
	}
	return nil
}

// runtimeOf is Pin if a copy was made with a pinned runtime.
func runtimeOf(copy client.Object) v1alpha1.RuntimeRule {
	if copy.GetAnnotations()[v1alpha1.AnnotationPinnedRuntime] != "" {
		return v1alpha1.RuntimePin
	}
	return ""
}

// failoverOf is the failover that a copy was created with.
func failoverOf(copy client.Object) v1alpha1.Failover {
	switch failover := v1alpha1.Failover(copy.GetAnnotations()[v1alpha1.AnnotationFailover]); failover {
	case v1alpha1.FailoverHold, v1alpha1.FailoverFenced, v1alpha1.FailoverImmediate:
		return failover
	default:
		return ""
	}
}
