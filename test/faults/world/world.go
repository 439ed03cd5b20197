// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/history"
	"github.com/trainyard/trainyard/test/faults/links"
	"github.com/trainyard/trainyard/test/yard"
)

// Times of a world. Fenced copies have ended FenceAfter after the hub's last sign of life, and the hub believes it
// FenceMargin later.
const (
	GracePeriod = 10 * time.Second
	// FenceAfter is so long that a suspended copy can end its pods in a sixth of it. With less time, an agent on a busy
	// machine would delete the copy.
	FenceAfter  = 9 * time.Second
	FenceMargin = 4 * time.Second
	// DeletionGrace is how long a deletion waits for a lost worker.
	DeletionGrace = 8 * time.Second
)

// LabelFailover on a job chooses the policy with this failover. Other jobs have a policy that does not choose.
const LabelFailover = "failover"

// labelWorker is on each WorkerCluster, with its name.
const labelWorker = "worker"

// managerArgs make a manager notice faults, and act on them, soon.
var managerArgs = []string{
	"--worker-probe-interval=1s", "--worker-timeout=2s", "--fence-margin=" + FenceMargin.String(),
	"--deletion-grace=" + DeletionGrace.String(), "--failover-pause-at=1",
}

// Options are the options of a world.
type Options struct {
	// Dir gets a directory for each cluster. Empty: temporary directories.
	Dir string
	// Workers are the workers' names, the cheapest first: jobs go to the first worker that has room.
	Workers []string
	// Agents is how many replicas of the agent each worker has.
	Agents int
	// GPUs is the number of GPUs of each of four nodes of each worker. Default: 8.
	GPUs int64
	// ManagerArgs override the arguments that every world has. Lease are arguments of leader election. Default: yard.FastLease.
	ManagerArgs, Lease []string
	// GracePeriod is the grace period of the workers. Default: the constant.
	GracePeriod time.Duration
	// FenceAfter is the fenceAfter of each worker, by name. Default: the constant. Do not change it later: the hub would
	// assume for a while that the agents work with the longer value.
	FenceAfter map[string]time.Duration
	// Timeout and Poll are those of the yard.Suite.
	Timeout, Poll time.Duration
	// Version is the version of everything at the start. Default: this one.
	Version yard.Version
	// Progress is called with what is being done.
	Progress func(format string, args ...any)
}

// World is a hub with workers that can fail.
type World struct {
	yard.Suite // Its clients use no Link.
	// Links are the links between the manager and each cluster, by the cluster's name.
	Links    map[string]*links.Link
	Recorder *history.Recorder

	mu sync.Mutex // held to write Links
}

// Start starts a world. The context limits only the start.
func Start(ctx context.Context, o Options) (*World, error) {
	w := &World{Links: map[string]*links.Link{}}
	o.GPUs, o.GracePeriod = cmp.Or(o.GPUs, 8), cmp.Or(o.GracePeriod, GracePeriod)
	w.Timeout, w.Poll = o.Timeout, o.Poll
	w.Options = yard.Options{
		Dir: o.Dir, Agents: o.Agents, ManagerArgs: slices.Concat(managerArgs, o.ManagerArgs), Reach: w.reach, Progress: o.Progress,
		Version: o.Version, Lease: o.Lease,
	}
	if o.Lease == nil {
		w.Options.Lease = yard.FastLease
	}
	for _, name := range o.Workers {
		w.Options.Workers = append(w.Options.Workers, yard.Worker{
			Name: name, Labels: map[string]string{labelWorker: name},
			Nodes: []clusters.NodeShape{yard.GPUNodes(name, 4, o.GPUs, "NVIDIA-H100")},
			Failover: v1alpha1.WorkerFailover{
				GracePeriod: &metav1.Duration{Duration: o.GracePeriod},
				FenceAfter:  &metav1.Duration{Duration: cmp.Or(o.FenceAfter[name], FenceAfter)},
			},
		})
	}
	stop, err := w.Suite.Start(ctx)
	if stop == nil {
		return nil, err
	}
	if err == nil {
		err = w.begin(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

// reach makes the link to a cluster when it is first asked for.
func (w *World) reach(cluster *clusters.Cluster) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if link := w.Links[cluster.Name]; link != nil {
		return link.URL(), nil
	}
	server, err := url.Parse(cluster.Config.Host)
	if err != nil {
		return "", err
	}
	link, err := links.New(cluster.Name, server.Host, filepath.Join(cluster.Dir, "pki"))
	if err != nil {
		return "", err
	}
	w.Links[cluster.Name] = link
	return link.URL(), nil
}

func (w *World) begin(ctx context.Context, o Options) error {
	configs := map[string]*rest.Config{}
	for name, cluster := range w.Yard.Workers {
		configs[name] = cluster.Config
	}
	var err error
	if w.Recorder, err = history.Start(ctx, w.Yard.Hub.Config, configs); err != nil {
		return err
	}
	for _, policy := range policies() {
		if err := w.admit(ctx, policy); err != nil {
			return err
		}
	}
	for i, name := range o.Workers {
		if err := w.EditWorker(ctx, name, func(worker *v1alpha1.WorkerCluster) {
			worker.Spec.Price = v1alpha1.Prices{yard.GPU: *resource.NewQuantity(int64(i+1), resource.DecimalSI)}
		}); err != nil {
			return err
		}
	}
	return nil
}

// admit creates a policy, and returns when the manager uses it: an earlier job would have no policy.
func (w *World) admit(ctx context.Context, policy *v1alpha1.DispatchPolicy) error {
	if err := w.Hub.Create(ctx, policy); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := w.Hub.Get(ctx, client.ObjectKeyFromObject(policy), policy)
		return err == nil && meta.IsStatusConditionTrue(policy.Status.Conditions, v1alpha1.DispatchPolicyValid), client.IgnoreNotFound(err)
	})
}

// policies prefer cheap workers. There is one for each failover, and one that says nothing about it and has checkpoints.
func policies() []*v1alpha1.DispatchPolicy {
	scoring := []v1alpha1.Score{{
		Name: v1alpha1.ScorePrice, Weight: 1, Ceiling: v1alpha1.Prices{yard.GPU: resource.MustParse("100"), corev1.ResourceCPU: resource.MustParse("1")},
	}}
	all := []*v1alpha1.DispatchPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "otherwise"}, Spec: v1alpha1.DispatchPolicySpec{Scoring: scoring, Checkpoint: &v1alpha1.Checkpointing{}},
	}}
	for i, failover := range []v1alpha1.Failover{v1alpha1.FailoverHold, v1alpha1.FailoverFenced, v1alpha1.FailoverImmediate} {
		policy := &v1alpha1.DispatchPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("failover-%d", i)},
			Spec:       v1alpha1.DispatchPolicySpec{Priority: 1, Scoring: scoring, Failover: failover},
		}
		policy.Spec.Jobs.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{LabelFailover: string(failover)}}
		all = append(all, policy)
	}
	return all
}

// EditWorker changes a WorkerCluster.
func (w *World) EditWorker(ctx context.Context, name string, change func(*v1alpha1.WorkerCluster)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		worker := &v1alpha1.WorkerCluster{}
		if err := w.Hub.Get(ctx, client.ObjectKey{Name: name}, worker); err != nil {
			return err
		}
		change(worker)
		return w.Hub.Update(ctx, worker)
	})
}

// Heal ends all faults of the network.
func (w *World) Heal() error {
	var errs []error
	for _, link := range w.Links {
		errs = append(errs, link.Heal())
	}
	return errors.Join(errs...)
}

// Stop ends the world. Call it once.
func (w *World) Stop() error {
	if w.Recorder != nil {
		w.Recorder.Stop()
	}
	err := w.Yard.Stop()
	for _, link := range w.Links {
		link.Close()
	}
	return err
}
