// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/internal/copies"
)

// propagation brings the namespace and the runtime of a job to the worker.
type propagation struct {
	cluster    v1alpha1.ClusterName
	hubID      string
	hub        client.Reader
	hubReader  client.Reader
	connection copies.Connection
	worker     client.Client
	// namespaceLabel and unsent are of the Options.
	namespaceLabel, unsent func(key string) bool
	job                    *unstructured.Unstructured
	// policy of the job, nil if there is none.
	policy *v1alpha1.DispatchPolicy
	// counted is the version of the runtime that the demand was derived from, empty if the Dispatch does not say it.
	counted string
	// countedOwn is the digest of the worker's own runtime that the demand was derived from, empty if it was the hub's.
	countedOwn string
	// runtimes is Options.Runtimes. patient is true while the copy may wait for what it does not know yet.
	runtimes func() *dispatch.Runtimes
	patient  func() bool
	// inUse is true if a change of the runtime on the worker would stop running copies.
	inUse func(ctx context.Context, kind string, key types.NamespacedName) (bool, error)
	// pins and pinned are for a job whose policy pins its runtime.
	pins   Pins
	pinned *pinned
	// release ends what the propagation holds, nil if it holds nothing.
	release func()
	// runtimeName is the name of the job's runtime on the worker, if it is another than on the hub.
	runtimeName string
	// ownRuntime is true if the worker's runtime did not come from the hub, or is not kept up to date.
	ownRuntime bool
}

// propagate makes sure that the worker has the namespace and the runtime of the job, and what its pods name. It changes nothing that exists
// there already, except a runtime that Trainyard created and that has changed on the hub since. Where that would stop
// running copies, the worker gets the newer version under another name.
func (c *creator) propagate(ctx context.Context, policy *v1alpha1.DispatchPolicy) error {
	p := c.propagationBy(policy)
	if err := p.namespace(ctx); err != nil {
		return err
	}
	bring := p.runtime
	if c.isPinned() {
		bring = p.pin
	}
	written, err := bring(ctx)
	c.letGo = p.letGo
	if written {
		c.attempt.creation.runtimeWritten = c.clock.Now()
	}
	c.runtimeName, c.ownRuntime = p.runtimeName, p.ownRuntime
	if err != nil {
		return err
	}
	left, err := c.dependencies.Bring(ctx, c.seen.dispatch)
	c.left = left
	return err
}

// propagationBy is the propagation of the job under its policy.
func (c *creator) propagationBy(policy *v1alpha1.DispatchPolicy) propagation {
	p := c.propagation
	p.job, p.policy, p.inUse = c.seen.job, policy, c.runtimeInUse
	if counted := c.seen.dispatch.Spec.Counted; counted != nil {
		p.counted, p.countedOwn = counted.Runtime, counted.WorkerRuntime
	}
	p.patient = func() bool { return c.attempt.creation.uncompared.elapsed(c.clock.Now()) < uncomparedLimit }
	return p
}

// isPropagated says whether propagate would leave the runtime on the worker as it is, and what the pods name.
func (c *creator) isPropagated(ctx context.Context, policy *v1alpha1.DispatchPolicy) bool {
	kind, key := trainjobs.RuntimeOf(c.seen.job)
	onWorker := metadataOf(trainer.SchemeGroupVersion.String(), kind)
	p := c.propagationBy(policy)
	if c.isPinned() {
		there := p.isPinned(ctx)
		c.runtimeName = p.runtimeName
		return there && c.dependencies.IsBrought(ctx, c.seen.dispatch)
	}
	return c.worker.Get(ctx, key, onWorker) == nil && p.keeps(onWorker) && c.dependencies.IsBrought(ctx, c.seen.dispatch)
}

// isPinned says whether the copy gets a pinned runtime.
func (c *creator) isPinned() bool { return c.seen.dispatch.Spec.Runtime == v1alpha1.RuntimePin }

// forbidden says that the worker lacks something which the job's policy does not allow to be created there.
func (p *propagation) forbidden(kind, name string) error {
	return refusal(fmt.Sprintf("worker %q has no %s %q, and DispatchPolicy %q does not allow creating it", p.cluster, kind, name, p.policy.Name))
}

func metadataOf(apiVersion, kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}}
}
