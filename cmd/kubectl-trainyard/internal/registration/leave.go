// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/config"
	"github.com/trainyard/trainyard/internal/cluster"
)

// Leave takes a worker out of a hub.
type Leave struct {
	hub *Cluster
	// worker is nil if the caller has not named it. Then the worker keeps what join has made there.
	worker    *Cluster
	namespace string
	hubID     string
	object    *v1alpha1.WorkerCluster
	say       func(line string) error
}

// NewLeave reads both clusters, and checks that the worker is the one that is registered. It writes nothing. worker is
// nil if the caller has not named it. say prints what has been done.
func NewLeave(
	ctx context.Context, hub, worker *Cluster, options Options, say func(line string) error,
) (*Leave, error) {
	l := &Leave{hub: hub, worker: worker, namespace: options.Namespace, say: say}
	seen := hub.observe(ctx, trainyardAPI)
	switch {
	case seen.err != nil:
		return nil, fmt.Errorf("hub %s: %w", seen.host, seen.err)
	case !seen.serves(trainyardAPI, "workerclusters"):
		return nil, fmt.Errorf("%s is not a hub (there is no %s workerclusters): name the hub with --hub-context", seen.host, trainyardAPI)
	}
	l.hubID = string(seen.id)
	var err error
	if l.object, err = hub.workerCluster(ctx, options.Name); err != nil {
		return nil, err
	}
	if worker == nil {
		return l, nil
	}
	far := worker.observe(ctx)
	switch {
	case far.err != nil:
		return nil, fmt.Errorf("worker %s: %w\nIf it will never answer again, take it out of the hub only: the same command without --context, "+
			"or with the hub's kubeconfig alone, and with --force if it has jobs", far.host, far.err)
	case far.id == seen.id:
		return nil, errors.New("--context leads to the hub itself: it names the worker, and --hub-context the hub")
	case l.object != nil && l.object.Status.ClusterID != "" && l.object.Status.ClusterID != far.id:
		return nil, fmt.Errorf("--context leads to another cluster (ID %s) than WorkerCluster %q (ID %s)",
			far.id, options.Name, l.object.Status.ClusterID)
	}
	registered, err := hub.workerClusters(ctx)
	if err != nil {
		return nil, err
	}
	for i := range registered {
		if other := &registered[i]; other.Name != options.Name && other.Status.ClusterID == far.id {
			return nil, fmt.Errorf("--context leads to WorkerCluster %q, not to %q", other.Name, options.Name)
		}
	}
	return l, nil
}

// Worker returns the WorkerCluster, or nil if it is not there.
func (l *Leave) Worker() *v1alpha1.WorkerCluster { return l.object }

// Latest reads the WorkerCluster again. It returns nil if it is not there.
func (l *Leave) Latest(ctx context.Context) (*v1alpha1.WorkerCluster, error) {
	return l.hub.workerCluster(ctx, l.object.Name)
}

// AwaitCordon waits until the manager has seen that the worker is cordoned: after that it places no job there. It passes
// to waits for what it waits, again and again.
func (l *Leave) AwaitCordon(ctx context.Context, waits func(text string) error) error {
	for {
		worker, err := l.hub.workerCluster(ctx, l.object.Name)
		if err == nil && worker == nil {
			return nil
		}
		if err == nil {
			ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
			if ready != nil && ready.ObservedGeneration >= worker.Generation {
				return nil
			}
		} else if ctx.Err() == nil {
			return err
		}
		if err := waits(fmt.Sprintf("waiting until the manager has seen that worker %q is cordoned", l.object.Name)); err != nil {
			return err
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), errTimeout) {
				return context.Cause(ctx)
			}
			return fmt.Errorf("the manager has not seen yet that worker %q is cordoned, and could place a job there: see whether it runs: "+
				"%s -n %s get deployments,pods; or use --force", l.object.Name, l.hub.kubectl(), l.namespace)
		}
	}
}

// Cordon sets fields of the spec of the WorkerCluster.
func (l *Leave) Cordon(ctx context.Context, spec map[string]any, done string) error {
	object := workerCluster(l.object.Name)
	object.Object["spec"] = spec
	return l.edit(ctx, object, done)
}

// Forget tells the hub that the worker will never return.
func (l *Leave) Forget(ctx context.Context) error {
	object := workerCluster(l.object.Name)
	object.SetAnnotations(map[string]string{v1alpha1.AnnotationForget: string(l.object.Status.ClusterID)})
	return l.edit(ctx, object, "forgotten")
}

// edit merges the fields of an object into the WorkerCluster, if that is there.
func (l *Leave) edit(ctx context.Context, object *unstructured.Unstructured, done string) error {
	live, err := l.hub.get(ctx, object)
	if live == nil || err != nil {
		return err
	}
	result, err := l.hub.merge(ctx, object, live)
	if err != nil || result == cluster.Unchanged {
		return err
	}
	return l.say(l.hub.line(live, cluster.Result(done)))
}

// ClearCopies waits until the worker has no copy of this hub that may run, and deletes the finished ones. The hub must
// have no job there. Without the worker it does nothing. It passes to waits for what it waits, again and again.
func (l *Leave) ClearCopies(ctx context.Context, waits func(text string) error) error {
	if l.worker == nil {
		return nil
	}
	for {
		alive, err := l.deleteFinished(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && (len(alive) == 0 || l.worker.DryRun):
			return nil
		case err == nil:
			if err := waits("waiting until these copies on the worker have ended: " + few(alive)); err != nil {
				return err
			}
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), errTimeout) {
				return context.Cause(ctx)
			}
			return fmt.Errorf("the worker still has copies of this hub: %s; if the hub has no record of them, decide about each with "+
				"\"kubectl trainyard adopt|release\", or use --force, which leaves them there", few(alive))
		}
	}
}

// broughtLimit is how long AwaitBrought waits. The manager deletes what no job needs at once, if it may.
const broughtLimit = 20 * time.Second

// AwaitBrought waits until the manager has deleted on the worker what it has brought there for jobs: nobody can do that for it
// when its rights are gone. After a while, and when ctx has no time left, it goes on: the worker may forbid it, or not answer, and
// Revoke says what is left.
func (l *Leave) AwaitBrought(ctx context.Context, waits func(text string) error) error {
	ctx, cancel := Limited(ctx, broughtLimit)
	defer cancel()
	for {
		worker, err := l.hub.workerCluster(ctx, l.object.Name)
		switch {
		case errors.Is(context.Cause(ctx), errTimeout):
			return nil
		case err != nil, worker == nil, len(worker.Status.Dependencies) == 0, l.hub.DryRun:
			return err
		}
		names := make([]string, len(worker.Status.Dependencies))
		for i, brought := range worker.Status.Dependencies {
			names[i] = brought.Namespace + "/" + brought.String()
		}
		if err := waits("waiting until the manager has deleted on the worker: " + few(names)); err != nil {
			return err
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), errTimeout) {
				return context.Cause(ctx)
			}
		}
	}
}

// deleteFinished deletes the finished copies of this hub, and returns the others.
func (l *Leave) deleteFinished(ctx context.Context) (alive []string, err error) {
	objects, err := l.worker.list(ctx, trainJobKind, client.MatchingLabels{labelHub: l.hubID})
	if err != nil {
		return nil, err
	}
	for i := range objects {
		copied := &objects[i]
		switch {
		case trainjobs.Terminal(copied) == nil:
			alive = append(alive, keyOf(copied))
		case copied.GetDeletionTimestamp() == nil:
			if err := l.remove(ctx, l.worker, copied); err != nil {
				return nil, err
			}
		}
	}
	return alive, nil
}

var trainJobKind = trainer.SchemeGroupVersion.WithKind(trainer.TrainJobKind)

func keyOf(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}.String()
}

// jobs returns the TrainJobs of the worker: the copies of this hub, and the others.
func (l *Leave) jobs(ctx context.Context) (ours, others []string, err error) {
	objects, err := l.worker.list(ctx, trainJobKind, nil)
	if err != nil {
		return nil, nil, err
	}
	for i := range objects {
		switch {
		case objects[i].GetDeletionTimestamp() != nil && trainjobs.Terminal(&objects[i]) != nil:
		case objects[i].GetLabels()[labelHub] == l.hubID:
			ours = append(ours, keyOf(&objects[i]))
		default:
			others = append(others, keyOf(&objects[i]))
		}
	}
	slices.Sort(ours)
	slices.Sort(others)
	return ours, others, nil
}

// Revoke deletes what join has made on the worker. What other hubs, or jobs that are left, need stays. The hub's tokens
// end with it.
func (l *Leave) Revoke(ctx context.Context) (left []string, err error) {
	if l.worker == nil {
		return nil, nil
	}
	hubs, err := l.worker.usedBy(ctx)
	if err != nil {
		return nil, err
	}
	ours, others, err := l.jobs(ctx)
	if err != nil {
		return nil, err
	}
	releases, err := l.releases(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.removePinned(ctx); err != nil {
		return nil, err
	}
	shared := otherHubs(hubs, l.hubID)
	if len(shared) == 0 {
		idle := len(ours)+len(others) == 0
		if err := l.removeRights(ctx, idle); err != nil {
			return nil, err
		}
		if err := l.removeElections(ctx, idle); err != nil {
			return nil, err
		}
	}
	// Without its tokens the hub does not make the lease again.
	lease := newObject(trainyardAPI, "ExecutionLease", "", l.hubID)
	for _, object := range []*unstructured.Unstructured{boundSecret(l.hubID), lease} {
		if err := l.remove(ctx, l.worker, object); err != nil {
			return nil, err
		}
	}
	left, err = l.left(ctx, shared, ours, others)
	if len(shared) == 0 {
		left = append(left, releases...)
	}
	return left, err
}

// removeRights deletes the account with its rights and tokens, and the agent unless it has work.
func (l *Leave) removeRights(ctx context.Context, idle bool) error {
	objects := []*unstructured.Unstructured{}
	if idle {
		agent, err := manifests(config.WorkerAgent)
		if err != nil {
			return err
		}
		// Webhooks whose server is gone would refuse every TrainJob, so they are deleted first. The manifests have them last.
		slices.Reverse(agent)
		objects = append(objects, agent...)
	}
	// Rights come before the policy that limits them.
	for _, folder := range []string{config.WorkerDependencies, config.WorkerExec, config.WorkerLogs, config.WorkerLookup, config.WorkerPins} {
		granted, err := manifests(folder)
		if err != nil {
			return err
		}
		objects = append(objects, granted...)
	}
	rights, err := manifests(config.Worker)
	if err != nil {
		return err
	}
	if !idle { // The admission policies guard the copies that are left.
		rights = slices.DeleteFunc(rights, func(o *unstructured.Unstructured) bool {
			return o.GroupVersionKind().Group == "admissionregistration.k8s.io"
		})
	}
	slices.Reverse(rights)
	objects = append(objects, without(rights, objects)...)
	objects = append(objects, newObject("v1", "Secret", workerNamespace, lastingSecret))
	for _, object := range objects {
		if kind := object.GetKind(); kind == "Namespace" || kind == "CustomResourceDefinition" {
			continue // Others may use them.
		}
		if err := l.remove(ctx, l.worker, object); err != nil {
			return err
		}
	}
	return nil
}

// removeElections deletes the leases of agents that are gone.
func (l *Leave) removeElections(ctx context.Context, idle bool) error {
	if !idle {
		return nil // The agent stays.
	}
	runners, err := l.worker.findDeployments(ctx)
	if err != nil {
		return fmt.Errorf("list Deployments on the worker: %w", err)
	}
	leases := []string{"fencing.trainyard.dev"}
	if _, found := runners[trainerDeployment]; !found { // Kubeflow Trainer uses the same lease.
		leases = append(leases, "trainer.kubeflow.org")
	}
	for _, lease := range leases {
		if err := l.remove(ctx, l.worker, newObject("coordination.k8s.io/v1", "Lease", agentNamespace, lease)); err != nil {
			return err
		}
	}
	return nil
}

// Unregister deletes what join has made on the hub. The WorkerCluster is deleted last: while it is there, a leave is
// not over.
func (l *Leave) Unregister(ctx context.Context, worker string) (left []string, err error) {
	f := &observation{options: Options{Name: worker, Namespace: l.namespace}}
	for _, object := range append(f.renewalRights(), f.credentialsSecret(nil), workerCluster(worker)) {
		if err := l.remove(ctx, l.hub, object); err != nil {
			return nil, err
		}
	}
	if l.object == nil {
		return nil, nil
	}
	connection := l.object.Spec.Connection
	switch {
	case connection.KubeconfigPath != "":
		left = append(left, fmt.Sprintf("the file %s of the manager has the worker's kubeconfig", connection.KubeconfigPath))
	case connection.KubeconfigSecretRef != nil && connection.KubeconfigSecretRef.Name != secretName(worker):
		left = append(left, fmt.Sprintf("Secret %s has the worker's kubeconfig, and was not made by join: %s -n %s delete secret %s",
			connection.KubeconfigSecretRef.Name, l.hub.kubectl(), l.namespace, connection.KubeconfigSecretRef.Name))
	}
	return left, nil
}

func (l *Leave) remove(ctx context.Context, c *Cluster, object *unstructured.Unstructured) error {
	result, err := c.remove(ctx, object)
	if err != nil || result == "" {
		return err
	}
	return l.say(c.line(object, result))
}
