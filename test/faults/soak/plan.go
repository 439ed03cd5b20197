// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/links"
	"github.com/trainyard/trainyard/test/faults/world"
)

// lane is a sequence of faults.
type lane string

const hubLane lane = "hub"

// fault is one thing that breaks.
type fault struct {
	lane lane
	kind string
	at   time.Duration
	last time.Duration
}

// String names the fault.
func (f fault) String() string {
	return fmt.Sprintf("%6.1fs %-5s %-18s for %.1fs", f.at.Seconds(), f.lane, f.kind, f.last.Seconds())
}

// kind is a kind of fault: how often it is drawn, and for how long it lasts.
type kind struct {
	name   string
	weight int
	least  time.Duration
	most   time.Duration
}

// cutOff is long enough for jobs to be placed again.
const cutOff = 45 * time.Second

var workerKinds = []kind{
	{"hang", 2, 2 * time.Second, 20 * time.Second},
	{"slow", 2, 2 * time.Second, 15 * time.Second},
	{"narrow", 1, 2 * time.Second, 15 * time.Second},
	{"reset", 1, time.Second, 10 * time.Second},
	{"refuse", 2, time.Second, 20 * time.Second},
	{"blackhole", 3, 2 * time.Second, cutOff},
	{"throttled", 1, 2 * time.Second, 15 * time.Second},
	{"errors", 1, 2 * time.Second, 15 * time.Second},
	{"watches-dropped", 1, 5 * time.Second, 15 * time.Second},
	{"gone", 1, 5 * time.Second, 15 * time.Second},
	{"server-paused", 1, 2 * time.Second, 20 * time.Second},
	{"server-killed", 1, time.Second, 10 * time.Second},
	{"etcd-killed", 1, time.Second, 10 * time.Second},
	{"agent-killed", 2, time.Second, time.Second},
	{"copies-deleted", 1, time.Second, time.Second},
	{"copies-suspended", 1, time.Second, time.Second},
	{"cordoned", 1, 5 * time.Second, 15 * time.Second},
	{"drained", 1, 10 * time.Second, 20 * time.Second},
}

var hubKinds = []kind{
	{"manager-killed", 4, time.Second, time.Second},
	{"manager-paused", 2, 5 * time.Second, 12 * time.Second},
	{"hang", 1, 2 * time.Second, 10 * time.Second},
	{"slow", 1, 2 * time.Second, 10 * time.Second},
	{"reset", 1, time.Second, 5 * time.Second},
	{"server-killed", 1, time.Second, 5 * time.Second},
	{"etcd-paused", 1, time.Second, 6 * time.Second},
	{"dispatches-deleted", 1, time.Second, time.Second},
}

// draw draws a kind.
func draw(r *rand.Rand, kinds []kind) kind {
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	n := r.IntN(total)
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	panic("unreachable")
}

// faultsOf are the faults of a lane, one after the other, until the time is over.
func faultsOf(seed uint64, l lane, number uint64, duration time.Duration) []fault {
	r := rand.New(rand.NewPCG(seed, number))
	kinds := workerKinds
	if l == hubLane {
		kinds = hubKinds
	}
	var faults []fault
	at := between(r, 2*time.Second, 8*time.Second)
	for at < duration {
		k := draw(r, kinds)
		f := fault{lane: l, kind: k.name, at: at, last: between(r, k.least, k.most)}
		f.last = min(f.last, duration-at)
		faults = append(faults, f)
		at += f.last + between(r, 3*time.Second, 15*time.Second)
	}
	return faults
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Float64()*float64(most-least))
}

// shape is a job.
type shape struct {
	nodes    int32
	runFor   time.Duration
	failover v1alpha1.Failover // empty: what the policy without a choice does
	fails    bool
	slowEnd  bool // its pods go on for a second when they are deleted
	// deletedAfter and suspendedAfter: what its user does; zero: nothing.
	deletedAfter, suspendedAfter time.Duration
}

// jobs draws one job after the other.
type jobs struct{ r *rand.Rand }

func newJobs(seed uint64) *jobs { return &jobs{r: rand.New(rand.NewPCG(seed, 1<<32))} }

func (j *jobs) next() shape {
	s := shape{nodes: int32(1 + j.r.IntN(2)), runFor: between(j.r, 500*time.Millisecond, 8*time.Second)}
	switch n := j.r.IntN(10); {
	case n < 3:
		s.failover = v1alpha1.FailoverHold
	case n < 4:
		s.failover = v1alpha1.FailoverImmediate
	}
	switch n := j.r.IntN(20); {
	case n == 0:
		s.fails = true
	case n < 3:
		s.deletedAfter = between(j.r, 100*time.Millisecond, 6*time.Second)
	case n < 5:
		s.suspendedAfter = between(j.r, 100*time.Millisecond, 4*time.Second)
	}
	s.slowEnd = j.r.IntN(4) == 0
	return s
}

// crew breaks things and mends them.
type crew struct {
	world *world.World
	// deleted are the keys of Dispatches that were deleted.
	deleted sync.Map
}

// begin makes a fault, and returns what ends it.
func (c *crew) begin(ctx context.Context, f fault) (end func(context.Context) error, err error) {
	name := string(f.lane)
	link, cluster := c.world.Links[name], c.world.Yard.Hub
	if f.lane != hubLane {
		cluster = c.world.Yard.Workers[name]
	}
	heal := func(context.Context) error { return link.Heal() }
	switch f.kind {
	case "hang":
		return heal, link.Hang()
	case "slow":
		return heal, link.Latency(700*time.Millisecond, 300*time.Millisecond)
	case "narrow":
		return heal, link.Bandwidth(30)
	case "reset":
		return heal, link.Reset()
	case "refuse":
		link.Refuse()
		return heal, nil
	case "blackhole":
		return heal, link.Blackhole()
	case "throttled":
		link.Intercept(links.Answer(http.StatusTooManyRequests, 1))
		return heal, nil
	case "errors":
		link.Intercept(links.Answer(http.StatusInternalServerError, 0))
		return heal, nil
	case "watches-dropped":
		link.Intercept(links.Watches(links.EndAfter(time.Second)))
		return heal, nil
	case "gone":
		link.Intercept(links.Forget(2 * time.Second))
		return heal, nil
	case "server-paused":
		return func(context.Context) error { return cluster.ResumeAPIServer() }, cluster.PauseAPIServer()
	case "server-killed":
		return revive(cluster.KillAPIServer, cluster.StartAPIServer), cluster.KillAPIServer()
	case "etcd-killed":
		return revive(cluster.KillEtcd, cluster.StartEtcd), cluster.KillEtcd()
	case "etcd-paused":
		return pause(cluster.Process("etcd"))
	case "agent-killed":
		return nothing, c.world.Agents[name][int(f.at)%len(c.world.Agents[name])].Process().Kill()
	case "manager-killed":
		return nothing, c.world.Managers.Kill()
	case "manager-paused":
		return c.world.Managers.Pause()
	case "copies-deleted":
		return nothing, c.eachCopy(ctx, name, func(worker client.Client, copied *trainer.TrainJob) error {
			return worker.Delete(ctx, copied)
		})
	case "copies-suspended":
		return nothing, c.eachCopy(ctx, name, func(worker client.Client, copied *trainer.TrainJob) error {
			before := copied.DeepCopy()
			copied.Spec.Suspend = ptr.To(true)
			return worker.Patch(ctx, copied, client.MergeFrom(before))
		})
	case "dispatches-deleted":
		return nothing, c.deleteDispatches(ctx)
	case "cordoned":
		return c.edit(ctx, name, func(spec *v1alpha1.WorkerClusterSpec, on bool) { spec.Unschedulable = on })
	case "drained":
		return c.edit(ctx, name, func(spec *v1alpha1.WorkerClusterSpec, on bool) { spec.Drain = on })
	}
	return nil, fmt.Errorf("there is no fault %q", f.kind)
}

func nothing(context.Context) error { return nil }

// revive starts what was killed. A busy machine may not have it ready in time: then it is killed and started once more,
// as nothing else would ever bring it back.
func revive(kill func() error, start func(context.Context) error) (end func(context.Context) error) {
	return func(ctx context.Context) error {
		var errs []error
		for range 3 {
			err := start(ctx)
			if err == nil {
				return nil
			}
			errs = append(errs, err, kill())
		}
		return errors.Join(errs...)
	}
}

func pause(p *clusters.Process) (end func(context.Context) error, err error) {
	return func(context.Context) error { return p.Signal(syscall.SIGCONT) }, p.Signal(syscall.SIGSTOP)
}

// share: somebody changes one of three objects by hand.
const share = 3

// eachCopy does something to some of the copies on a worker. A copy that is gone, or a webhook of the worker that is
// away, is no error.
func (c *crew) eachCopy(ctx context.Context, name string, do func(client.Client, *trainer.TrainJob) error) error {
	worker := c.world.Workers[name]
	var copies trainer.TrainJobList
	if err := worker.List(ctx, &copies, client.HasLabels{v1alpha1.LabelOriginUID}); err != nil {
		return err
	}
	for i := range copies.Items {
		if i%share == 0 {
			_ = do(worker, &copies.Items[i])
		}
	}
	return nil
}

// deleteDispatches deletes some Dispatches of live jobs.
func (c *crew) deleteDispatches(ctx context.Context) error {
	var dispatches v1alpha1.DispatchList
	if err := c.world.Hub.List(ctx, &dispatches); err != nil {
		return err
	}
	for i := range dispatches.Items {
		d := &dispatches.Items[i]
		if i%share == 0 && !d.IsFinished() {
			c.deleted.Store(client.ObjectKeyFromObject(d), true)
			// If it has changed, others will be drawn.
			_ = c.world.Hub.Delete(ctx, d, client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion})
		}
	}
	return nil
}

// edit switches something of a WorkerCluster on, and off at the end. The hub's API server may be away, so edit repeats
// its request until it succeeds.
func (c *crew) edit(ctx context.Context, name string, change func(*v1alpha1.WorkerClusterSpec, bool)) (end func(context.Context) error, err error) {
	set := func(ctx context.Context, on bool) error {
		for {
			err := c.world.EditWorker(ctx, name, func(worker *v1alpha1.WorkerCluster) { change(&worker.Spec, on) })
			if err == nil || ctx.Err() != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return func(ctx context.Context) error { return set(ctx, false) }, set(ctx, true)
}

// ready says whether a lane has recovered: the worker is Connected, or the hub's manager works.
func (c *crew) ready(ctx context.Context, l lane) bool {
	if l == hubLane {
		return c.lead(ctx)
	}
	worker := &v1alpha1.WorkerCluster{}
	if err := c.world.Hub.Get(ctx, client.ObjectKey{Name: string(l)}, worker); err != nil {
		return false
	}
	for _, condition := range worker.Status.Conditions {
		if condition.Type == v1alpha1.WorkerClusterReady {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return false
}

// lead says whether a manager has renewed the lease a moment ago. This machine has one clock.
func (c *crew) lead(ctx context.Context) bool {
	lease := &coordinationv1.Lease{}
	err := c.world.Hub.Get(ctx, client.ObjectKey{Namespace: "trainyard-system", Name: "manager.trainyard.dev"}, lease)
	return err == nil && lease.Spec.RenewTime != nil && time.Since(lease.Spec.RenewTime.Time) < 2*time.Second
}
