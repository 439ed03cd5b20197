// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/worker/trainjob"
	workerlease "github.com/trainyard/trainyard/executionlease/worker"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	// fenceAfter gives an interval and a handover of 10 s, a slack of 15 s and a lead of 10 s. The agents measure them by
	// fake clocks that only the test moves. Real time decides nothing.
	fenceAfter = 100 * time.Second
	interval   = 10 * time.Second
	patience   = 60 * time.Second
	// leaseDuration of the agents' election is real time. It is long, so that a busy machine does not change the leader.
	leaseDuration = 15 * time.Second
)

// environment is a worker with only an API server. Agents are real. Tests play the hubs, JobSet's controller and the
// kubelet.
type environment struct {
	client.WithWatch
	server *clusters.Cluster
	scheme *runtime.Scheme
	// agents and hubs that exist.
	agents []*agent
	hubs   []*hub
}

var shared = stage.ShareWith(newEnvironment)

func TestMain(m *testing.M) { shared.Main(m) }

func newEnvironment(ctx context.Context, cleanup func(func() error)) (*environment, error) {
	server, err := stage.StartServer(ctx, cleanup, clusters.Options{Name: "worker"}, clusters.JobSetCRDs)
	if err != nil {
		return nil, err
	}
	e := &environment{WithWatch: server.Admin, server: server.Cluster, scheme: server.Admin.Scheme()}
	if err := server.InstallRuntime(ctx); err != nil {
		return nil, err
	}
	playing, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.playNode(playing)
	}()
	cleanup(func() error {
		end()
		<-ended
		return nil
	})
	return e, nil
}

// withLeases returns the environment with the CRD of leases.
func withLeases(t *testing.T) *environment {
	t.Helper()
	e := shared.Get(t)
	check.Must(t, e.server.InstallCRDs(t.Context(), "../../config/crd/worker/trainyard.dev_executionleases.yaml"))
	return e
}

// agent is a process of the worker-agent with its fencing.
type agent struct {
	name   string
	clock  *clocktesting.FakeClock
	fencer *workerlease.Fencer
	stop   func()
}

// with configures an agent.
type with struct {
	// trainJobs: the agent has the TrainJob controller, which makes JobSets. It may be a standby for fencing.
	trainJobs bool
	// lease is the duration of the agent's Lease. 0: leaseDuration.
	lease time.Duration
}

func (e *environment) startAgent(t *testing.T, name string, special with) *agent {
	t.Helper()
	// Each agent has another time.
	a := &agent{name: name, clock: clocktesting.NewFakeClock(time.Now().Add(time.Duration(len(name)) * time.Hour))}
	ctx, cancel := context.WithCancel(context.Background())
	config := rest.CopyConfig(e.server.Config)
	config.QPS, config.Burst = 500, 1000
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: e.scheme, Cache: trainjob.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	check.Must(t, err)
	fencer, err := workerlease.Add(ctx, mgr, workerlease.Options{
		Identity: name, Clock: a.clock, CRDInterval: 100 * time.Millisecond, SkipNameValidation: true,
		Election: &workerlease.Election{
			Namespace: metav1.NamespaceDefault, LeaseDuration: cmp.Or(special.lease, leaseDuration),
			RenewDeadline: cmp.Or(special.lease, leaseDuration) * 2 / 3, RetryPeriod: 100 * time.Millisecond,
		},
	})
	check.Must(t, err)
	a.fencer = fencer
	if special.trainJobs {
		check.Must(t, trainjob.Add(ctx, mgr, trainjob.Options{SkipNameValidation: true, Gate: fencer.Gate, Rechecks: fencer.Rechecks()}))
	}
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	e.agents = append(e.agents, a)
	a.stop = func() {
		if ctx.Err() != nil {
			return
		}
		e.agents = slices.DeleteFunc(e.agents, func(other *agent) bool { return other == a })
		select {
		case err := <-stopped:
			t.Errorf("agent %s has ended: %v", name, err)
			stopped <- nil
		default:
		}
		cancel()
		check.Equal(t, nil, <-stopped, "agent %s", name)
	}
	t.Cleanup(a.stop)
	return a
}

// step moves the agents' clocks. It then waits until the hubs have answered the new challenges, and the leader has seen
// the answers.
func (e *environment) step(t *testing.T, d time.Duration) {
	t.Helper()
	answered := map[*hub]int32{}
	for _, h := range e.hubs {
		answered[h] = h.answers.Load()
	}
	for _, a := range e.agents {
		a.clock.Step(d)
	}
	for _, h := range e.hubs {
		if d >= interval && !h.isSilent() {
			eventually(t, "answer of "+h.id, func(g gomega.Gomega) {
				g.Expect(h.answers.Load()).To(gomega.BeNumerically(">", answered[h]))
				leader := e.agents[0]
				g.Expect(leader.fencer.Deadline(h.id)).To(gomega.BeTemporally(">=", leader.clock.Now().Add(fenceAfter-interval)))
			})
		}
	}
}

var hubs atomic.Int32

// hub plays a hub: it answers the challenges in its lease unless it is silent.
type hub struct {
	*environment
	id        string
	namespace string
	// answering is held while the hub reads its lease and answers. It guards silent.
	answering sync.Mutex
	silent    bool
	// word is the last challenge that the hub has answered. answers counts the answers.
	word    atomic.Pointer[string]
	answers atomic.Int32
}

// newHub creates a lease, a namespace for the hub's copies, and waits until the lease is valid.
func (e *environment) newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{environment: e, id: fmt.Sprintf("hub-%d", hubs.Add(1)), namespace: fmt.Sprintf("test-%d", hubs.Load())}
	h.word.Store(new(""))
	check.Must(t, e.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.namespace}}))
	h.createLease(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for every(ctx, 20*time.Millisecond) {
			h.look(ctx)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		e.hubs = slices.DeleteFunc(e.hubs, func(other *hub) bool { return other == h })
		check.Must(t, e.DeleteAllOf(context.Background(), &trainer.TrainJob{}, client.InNamespace(h.namespace)))
		check.Must(t, e.Delete(context.Background(), &v1alpha1.ExecutionLease{ObjectMeta: metav1.ObjectMeta{Name: h.id}}))
	})
	h.awaitState(t, v1alpha1.LeaseValid)
	e.hubs = append(e.hubs, h)
	return h
}

func (h *hub) createLease(t *testing.T) {
	t.Helper()
	lease := &v1alpha1.ExecutionLease{ObjectMeta: metav1.ObjectMeta{Name: h.id}}
	lease.Spec.FenceAfter.Duration = fenceAfter
	check.Must(t, h.Create(t.Context(), lease))
}

// setSilent starts or ends the hub's silence. If an answer is on its way, setSilent waits until it has arrived.
func (h *hub) setSilent(silent bool) {
	h.answering.Lock()
	defer h.answering.Unlock()
	h.silent = silent
}

func (h *hub) isSilent() bool {
	h.answering.Lock()
	defer h.answering.Unlock()
	return h.silent
}

func (h *hub) look(ctx context.Context) {
	h.answering.Lock()
	defer h.answering.Unlock()
	lease := &v1alpha1.ExecutionLease{}
	if h.silent || h.Get(ctx, client.ObjectKey{Name: h.id}, lease) != nil || lease.Status.Challenge == lease.Spec.Answer {
		return
	}
	if h.answer(ctx, lease.Status.Challenge) == nil {
		h.word.Store(&lease.Status.Challenge)
		h.answers.Add(1)
	}
}

func (h *hub) answer(ctx context.Context, challenge string) error {
	lease := &v1alpha1.ExecutionLease{ObjectMeta: metav1.ObjectMeta{Name: h.id}}
	patch := fmt.Sprintf(`{"spec":{"answer":%q,"manager":"test"}}`, challenge)
	return h.Patch(ctx, lease, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func (h *hub) lease(t *testing.T) *v1alpha1.ExecutionLease {
	t.Helper()
	lease := &v1alpha1.ExecutionLease{}
	check.Must(t, h.Get(t.Context(), client.ObjectKey{Name: h.id}, lease))
	return lease
}

func (h *hub) awaitState(t *testing.T, state v1alpha1.LeaseState) {
	t.Helper()
	eventually(t, fmt.Sprintf("lease of %s to be %s", h.id, state), func(g gomega.Gomega) {
		g.Expect(h.lease(t).Status.State).To(gomega.Equal(state))
	})
}

// createCopy creates a copy as the hub does, with changes: failover Fenced, attempt 1 and the hub's last answer.
func (h *hub) createCopy(t *testing.T, name string, changes map[string]string) *trainer.TrainJob {
	t.Helper()
	job := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.namespace, Name: name,
			Labels: map[string]string{v1alpha1.LabelHub: h.id, v1alpha1.LabelOriginUID: "origin-" + h.id + name},
			Annotations: map[string]string{
				v1alpha1.AnnotationAttempt: "1", v1alpha1.AnnotationFailover: string(v1alpha1.FailoverFenced),
				v1alpha1.AnnotationChallenge: *h.word.Load(),
			},
		},
		Spec: trainer.TrainJobSpec{RuntimeRef: trainer.RuntimeRef{Name: "torch-distributed"}},
	}
	for key, value := range changes {
		job.Annotations[key] = value
	}
	check.Must(t, h.Create(t.Context(), job))
	return job
}

// runCopy creates a copy, waits for its JobSet, and gives the copy a pod with a grace.
func (h *hub) runCopy(t *testing.T, name string, grace int64, changes map[string]string) *trainer.TrainJob {
	t.Helper()
	job := h.createCopy(t, name, changes)
	jobSet := h.awaitJobSet(t, job)
	check.Must(t, h.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.namespace, Name: name,
			Labels: map[string]string{jobsetv1alpha2.JobSetNameKey: name, jobsetv1alpha2.JobSetUIDKey: string(jobSet.UID)},
		},
		Spec: corev1.PodSpec{
			NodeName: "node", TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "main", Image: "image"}},
		},
	}))
	return job
}

// awaitJobSet waits until a copy has a JobSet. It moves the clocks: the replica that makes JobSets may not know the
// challenge, and then the hub must stamp the copy again.
func (h *hub) awaitJobSet(t *testing.T, job *trainer.TrainJob) *jobsetv1alpha2.JobSet {
	t.Helper()
	jobSet := &jobsetv1alpha2.JobSet{}
	look := func(g gomega.Gomega) {
		g.Expect(h.Get(t.Context(), client.ObjectKeyFromObject(job), jobSet)).To(gomega.Succeed())
	}
	for range 5 {
		if gomega.NewGomega(func(string, ...int) {}).Eventually(look, time.Second, 20*time.Millisecond).Should(gomega.Succeed()) {
			return jobSet
		}
		h.step(t, interval)
		if isFenced(h.get(t, job)) {
			h.resume(t, job)
		}
	}
	eventually(t, "JobSet of "+job.Name, look)
	return jobSet
}

func (e *environment) get(t *testing.T, job *trainer.TrainJob) *trainer.TrainJob {
	t.Helper()
	got := &trainer.TrainJob{}
	check.Must(t, e.Get(t.Context(), client.ObjectKeyFromObject(job), got))
	return got
}

// resume resumes a fenced copy as the hub's mirror does when the copy is the current one.
func (h *hub) resume(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	eventually(t, "resumption of "+job.Name, func(g gomega.Gomega) {
		current := h.get(t, job)
		updated := current.DeepCopy()
		updated.Spec.Suspend = new(false)
		delete(updated.Annotations, v1alpha1.AnnotationFenced)
		updated.Annotations[v1alpha1.AnnotationChallenge] = *h.word.Load()
		patch := client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{})
		g.Expect(h.Patch(t.Context(), updated, patch)).To(gomega.Succeed())
	})
}

func isSuspended(job *trainer.TrainJob) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func isFenced(job *trainer.TrainJob) bool {
	_, fenced := job.Annotations[v1alpha1.AnnotationFenced]
	return fenced && isSuspended(job)
}

// checkRuns fails if an agent has stopped a copy.
func (e *environment) checkRuns(t *testing.T, jobs ...*trainer.TrainJob) {
	t.Helper()
	for _, job := range jobs {
		if got := e.get(t, job); isSuspended(got) || isFenced(got) || !got.DeletionTimestamp.IsZero() {
			t.Errorf("copy %s was stopped, and its hub is there, or it is not to be fenced: %v", job.Name, got.Annotations)
		}
		check.Must(t, e.Get(t.Context(), client.ObjectKeyFromObject(job), &corev1.Pod{}))
	}
}

// awaitFenced waits until an agent has suspended and marked a copy.
func (e *environment) awaitFenced(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	eventually(t, job.Name+" to be fenced", func(g gomega.Gomega) { g.Expect(isFenced(e.get(t, job))).To(gomega.BeTrue()) })
}

func (e *environment) awaitNoPod(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	eventually(t, "pod of "+job.Name+" to end", func(g gomega.Gomega) {
		err := e.Get(t.Context(), client.ObjectKeyFromObject(job), &corev1.Pod{})
		g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue())
	})
}

func (e *environment) checkEvent(t *testing.T, job *trainer.TrainJob, reason, text string) {
	t.Helper()
	eventually(t, "Event "+reason, func(g gomega.Gomega) {
		var list corev1.EventList
		g.Expect(e.List(t.Context(), &list, client.InNamespace(job.Namespace))).To(gomega.Succeed())
		var notes []string
		for _, event := range list.Items {
			if event.InvolvedObject.UID == job.UID {
				notes = append(notes, event.Reason+": "+event.Message)
			}
		}
		g.Expect(notes).To(gomega.ContainElement(gomega.And(gomega.HavePrefix(reason+": "), gomega.ContainSubstring(text))))
	})
}

func (h *hub) checkLeaseEvent(t *testing.T, reason string) {
	t.Helper()
	eventually(t, "Event "+reason, func(g gomega.Gomega) {
		var list corev1.EventList
		g.Expect(h.List(t.Context(), &list, client.InNamespace(metav1.NamespaceDefault))).To(gomega.Succeed())
		g.Expect(slices.ContainsFunc(list.Items, func(event corev1.Event) bool {
			return event.InvolvedObject.Name == h.id && event.Reason == reason
		})).To(gomega.BeTrue())
	})
}

// deaf is the prefix of jobs that the played JobSet controller ignores.
const deaf = "deaf-"

// playNode plays JobSet's controller and a kubelet: it deletes the pods of suspended JobSets. A pod ends at once only
// if its grace is one second.
func (e *environment) playNode(ctx context.Context) {
	for every(ctx, 50*time.Millisecond) {
		var pods corev1.PodList
		if e.List(ctx, &pods) != nil {
			continue
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			switch {
			case !pod.DeletionTimestamp.IsZero() && *pod.DeletionGracePeriodSeconds <= 1:
				_ = e.Delete(ctx, pod, client.GracePeriodSeconds(0))
			case pod.DeletionTimestamp.IsZero() && !strings.HasPrefix(pod.Name, deaf) && e.jobSetIsSuspended(ctx, client.ObjectKeyFromObject(pod)):
				_ = e.Delete(ctx, pod)
			}
		}
	}
}

func (e *environment) jobSetIsSuspended(ctx context.Context, key client.ObjectKey) bool {
	jobSet := &jobsetv1alpha2.JobSet{}
	return e.Get(ctx, key, jobSet) == nil && jobSet.Spec.Suspend != nil && *jobSet.Spec.Suspend
}

// every waits, and returns false if the context has ended.
func every(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

func newPod() *corev1.Pod { return &corev1.Pod{} }

var eventually = check.Within(patience, 20*time.Millisecond)
