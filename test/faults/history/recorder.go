// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/laws"
)

// proofTime is how long a worker may take to say whether a copy can run there.
const proofTime = 3 * time.Second

// Overlap is two copies of one TrainJob that could run at the same time.
type Overlap struct {
	First, Second Copy
	At            time.Time
	Proof         string
}

// String describes the overlap for people.
func (o Overlap) String() string {
	return fmt.Sprintf("at %s %s began while %s could run: by %s", o.At.Format(clockFormat), o.Second, o.First, o.Proof)
}

// Recorder records what happens. Its methods are safe for concurrent use.
type Recorder struct {
	workers   map[string]client.WithWatch
	hubClient client.WithWatch
	ctx       context.Context //nolint:containedctx // It is the recorder's life.
	cancel    context.CancelFunc
	following sync.WaitGroup
	proofs    sync.WaitGroup
	stopHub   context.CancelFunc // of the followers of the hub
	hubGone   *sync.WaitGroup

	mu       sync.Mutex
	ledger   *ledger   // under mu
	hub      *hub      // under mu
	overlaps []Overlap // under mu
}

// Hide lets versions from now on lack the fields that a function takes off: an older CRD hides them, and they are gone
// when the object is written next.
func (r *Recorder) Hide(fields func(*v1alpha1.Dispatch)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hub.hidden = fields
}

// Start begins to record. It returns when the recorder knows everything that exists.
func Start(ctx context.Context, hub *rest.Config, workers map[string]*rest.Config) (*Recorder, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), trainer.AddToScheme(scheme), jobsetv1alpha2.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	r := &Recorder{workers: map[string]client.WithWatch{}, hub: newHub(laws.Check)}
	r.ledger = newLedger(r.prove)
	var err error
	if r.hubClient, err = client.NewWithWatch(hub, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	for name, config := range workers {
		if r.workers[name], err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
			return nil, err
		}
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	var ready []<-chan struct{}
	for name, worker := range r.workers {
		ready = append(ready, r.followWorker(name, worker)...)
	}
	ready = append(ready, r.followHub()...)
	for _, c := range ready {
		select {
		case <-c:
		case <-ctx.Done():
			r.Stop()
			return nil, fmt.Errorf("start recorder: %w", ctx.Err())
		}
	}
	return r, nil
}

// Stop ends the recorder. Its records stay.
func (r *Recorder) Stop() {
	r.cancel()
	r.following.Wait()
	r.hubGone.Wait()
	r.proofs.Wait()
}

// Restored tells the recorder that the hub's versions begin again, as after a restore from a backup.
func (r *Recorder) Restored(ctx context.Context) error {
	r.stopHub()
	r.hubGone.Wait()
	r.mu.Lock()
	r.hub.restored()
	r.mu.Unlock()
	for _, c := range r.followHub() {
		select {
		case <-c:
		case <-ctx.Done():
			return fmt.Errorf("follow the restored hub: %w", ctx.Err())
		}
	}
	return nil
}

func (r *Recorder) followWorker(name string, c client.WithWatch) []<-chan struct{} {
	jobs := trainjobs.NewList()
	return []<-chan struct{}{
		follow(r.ctx, &r.following, &follower{client: c, list: jobs, handle: r.locked(func(object client.Object, gone bool, when moment) {
			r.ledger.trainJob(name, object.(*unstructured.Unstructured), gone, when)
		})}),
		follow(r.ctx, &r.following, &follower{client: c, list: &jobsetv1alpha2.JobSetList{}, handle: r.locked(func(object client.Object, _ bool, when moment) {
			r.ledger.jobSet(object.(*jobsetv1alpha2.JobSet), when)
		})}),
		follow(r.ctx, &r.following, &follower{client: c, list: &corev1.PodList{}, handle: r.locked(func(object client.Object, gone bool, when moment) {
			r.ledger.pod(object.(*corev1.Pod), gone, when)
		})}),
	}
}

func (r *Recorder) followHub() []<-chan struct{} {
	ctx, cancel := context.WithCancel(r.ctx)
	r.stopHub, r.hubGone = cancel, &sync.WaitGroup{}
	return []<-chan struct{}{
		follow(ctx, r.hubGone, &follower{client: r.hubClient, list: &v1alpha1.DispatchList{}, each: true, handle: r.locked(func(object client.Object, gone bool, when moment) {
			r.hub.dispatch(object.(*v1alpha1.Dispatch), gone, when)
		})}),
		follow(ctx, r.hubGone, &follower{client: r.hubClient, list: trainjobs.NewList(), each: true, handle: r.locked(func(object client.Object, gone bool, when moment) {
			r.hub.trainJob(object.(*unstructured.Unstructured), gone, when)
		})}),
	}
}

// locked calls handle under the lock.
func (r *Recorder) locked(handle func(client.Object, bool, moment)) func(client.Object, bool, moment) {
	return func(object client.Object, gone bool, when moment) {
		r.mu.Lock()
		defer r.mu.Unlock()
		handle(object, gone, when)
	}
}

// follow runs a follower. The channel is closed when it knows all that there is.
func follow(ctx context.Context, running *sync.WaitGroup, f *follower) <-chan struct{} {
	ready := make(chan struct{})
	var once sync.Once
	running.Go(func() { f.run(ctx, func() { once.Do(func() { close(ready) }) }) })
	return ready
}

// prove finds out whether a meeting is an overlap. The caller holds mu, which is not held while the worker is asked.
func (r *Recorder) prove(m meeting) {
	if !m.open {
		r.overlaps = append(r.overlaps, Overlap{First: m.other, Second: m.begins, At: m.at, Proof: "their times, as far as they are known"})
		return
	}
	r.proofs.Go(func() {
		runs, err := r.canRun(m.other)
		if err == nil && !runs {
			return
		}
		proof := "what its worker says"
		if err != nil {
			proof = "what was last seen, as its worker does not answer: " + err.Error()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.overlaps = append(r.overlaps, Overlap{First: m.other, Second: m.begins, At: m.at, Proof: proof})
	})
}

// canRun asks a worker whether a copy can run there now.
func (r *Recorder) canRun(c Copy) (bool, error) {
	ctx, cancel := context.WithTimeout(r.ctx, proofTime)
	defer cancel()
	worker := r.workers[c.Worker]
	job := trainjobs.New()
	err := worker.Get(ctx, c.Key, job)
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	if err == nil && job.GetUID() == c.UID && !trainjobs.Suspended(job) && trainjobs.Terminal(job) == nil {
		set := &jobsetv1alpha2.JobSet{}
		err := worker.Get(ctx, c.Key, set)
		if err != nil || job.GetDeletionTimestamp() == nil || set.DeletionTimestamp == nil {
			return true, client.IgnoreNotFound(err)
		}
	}
	var pods corev1.PodList
	if err := worker.List(ctx, &pods, client.InNamespace(c.Key.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: c.Key.Name}); err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
		owner := r.ledger.jobSets[types.UID(pod.Labels[jobsetv1alpha2.JobSetUIDKey])]
		return owner == c.UID && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
	}), nil
}
