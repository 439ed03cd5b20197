// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/links"
)

// load submits jobs that end soon, some each second, until stop is closed, and returns them.
func (s *scenario) load(stop <-chan struct{}, runFor string) []*trainer.TrainJob {
	s.Helper()
	var jobs []*trainer.TrainJob
	for {
		select {
		case <-stop:
			return jobs
		case <-time.After(300 * time.Millisecond):
			jobs = append(jobs, s.submit(runFor, on(east, south)))
		}
	}
}

// leader returns which manager leads.
func leader(g gomega.Gomega) string {
	lease := &coordinationv1.Lease{}
	g.Expect(w.Hub.Get(context.Background(), client.ObjectKey{Namespace: "trainyard-system", Name: "manager.trainyard.dev"}, lease)).To(gomega.Succeed())
	g.Expect(lease.Spec.HolderIdentity).To(gomega.HaveValue(gomega.Not(gomega.BeEmpty())))
	return *lease.Spec.HolderIdentity
}

// leads waits until a manager leads, and returns which.
func (s *scenario) leads() (who string) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) { who = leader(g) })
	return who
}

// anotherLeads waits until another manager leads.
func (s *scenario) anotherLeads(than string) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) { g.Expect(leader(g)).NotTo(gomega.Equal(than)) })
}

// The leading manager is paused, another manager takes over, and then the first continues. Jobs come all the time.
func TestFaultTwoManagers(t *testing.T) {
	s := alone(t)
	stop := make(chan struct{})
	loaded := make(chan []*trainer.TrainJob)
	go func() { loaded <- s.load(stop, "1s") }()
	before := s.leads()
	resume, err := w.Managers.Pause()
	check.Must(t, err)
	s.anotherLeads(before)
	s.ends(s.submit("1s", on(east, south)))
	check.Must(t, resume(t.Context()))
	close(stop)
	jobs := <-loaded
	s.ends(jobs...)
	for _, job := range jobs {
		s.Attempt(job, 1)
	}
}

// retires waits until a manager has ended because it cannot renew its lease.
func (s *scenario) retires(ended <-chan struct{}) {
	s.Helper()
	gomega.NewWithT(s).Eventually(ended).WithTimeout(timeout).Should(gomega.BeClosed())
}

// The hub's API server is killed, and is away until the manager has lost its lease. Running jobs run on.
func TestFaultHubAPIServerKilled(t *testing.T) {
	s := alone(t)
	jobs := []*trainer.TrainJob{s.submit("1s", on(south)), s.submit("4s", on(east))}
	s.Runs(jobs[1], east, 1)
	ended := w.Managers.Ended()
	check.Must(t, w.Yard.Hub.KillAPIServer())
	s.retires(ended)
	check.Must(t, w.Yard.Hub.StartAPIServer(t.Context()))
	s.ends(append(jobs, s.submit("1s", on(east)))...)
	for _, job := range jobs {
		s.Attempt(job, 1)
	}
}

// The hub's etcd stops: its API server accepts requests and answers none, until the manager has lost its lease.
func TestFaultHubEtcdPaused(t *testing.T) {
	s := alone(t)
	jobs := []*trainer.TrainJob{s.submit("1s", on(south)), s.submit("4s", on(east))}
	s.Runs(jobs[1], east, 1)
	ended, etcd := w.Managers.Ended(), w.Yard.Hub.Process("etcd")
	check.Must(t, etcd.Signal(syscall.SIGSTOP))
	s.retires(ended)
	check.Must(t, etcd.Signal(syscall.SIGCONT))
	s.Eventually(func(g gomega.Gomega) { leader(g) })
	s.ends(append(jobs, s.submit("1s", on(east)))...)
	for _, job := range jobs {
		s.Attempt(job, 1)
	}
}

// away takes a worker's API server away for longer than the grace period. Something may be running there that no agent
// can stop, so the job stays, and its Dispatch says why.
func away(t *testing.T, leave, back func(*clusters.Cluster) error) {
	s, worker := patient(t)
	job := s.submit("6s", on(worker, south))
	s.Runs(job, worker, 1)
	cluster := w.Yard.Workers[worker]
	check.Must(t, leave(cluster))
	returned := false
	t.Cleanup(func() {
		if !returned {
			_ = back(cluster)
		}
	})
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonUnreachable)
	s.ends(s.submit("1s", on(worker, south))) // On south.
	s.answered(job, worker)
	returned = true
	check.Must(t, back(cluster))
	s.ready(worker)
	s.ends(job)
	s.Attempt(job, 1)
}

// A worker's API server is paused: the kernel accepts connections, and nothing answers.
func TestFaultAPIServerPaused(t *testing.T) {
	away(t, (*clusters.Cluster).PauseAPIServer, (*clusters.Cluster).ResumeAPIServer)
}

// A worker's API server is killed: connections are refused.
func TestFaultAPIServerKilled(t *testing.T) {
	away(t, (*clusters.Cluster).KillAPIServer, func(c *clusters.Cluster) error { return c.StartAPIServer(context.Background()) })
}

// A worker's etcd is killed: its API server answers with errors.
func TestFaultEtcdKilled(t *testing.T) {
	away(t, (*clusters.Cluster).KillEtcd, func(c *clusters.Cluster) error { return c.StartEtcd(context.Background()) })
}

// The agents of a worker are killed in turn while jobs run there.
func TestFaultAgentsKilled(t *testing.T) {
	s, worker := with(t)
	var jobs []*trainer.TrainJob
	for _, agent := range w.Agents[worker] {
		for i := range 3 {
			jobs = append(jobs, s.submit(fmt.Sprintf("%ds", 1+i), on(worker)))
		}
		check.Must(t, agent.Process().Kill())
	}
	s.ends(jobs...)
	for _, job := range jobs {
		s.Attempt(job, 1)
	}
}

// held waits until the Dispatch says that the job stays where it is because its worker may be running it.
func (s *scenario) held(job *trainer.TrainJob, worker string) {
	s.Helper()
	s.dispatchSays(job, v1alpha1.DispatchWorkerLost, v1alpha1.ReasonHold, worker)
}

// answered waits until the Dispatch says that the job stays because something at its worker's address has answered.
func (s *scenario) answered(job *trainer.TrainJob, worker string) {
	s.Helper()
	s.dispatchSays(job, v1alpha1.DispatchWorkerLost, v1alpha1.ReasonAddressAnswers, worker)
}

// isolated runs jobs on south before and during a fault of another worker. The fault must not make them slower. A job
// that runs on the faulty worker stays there. A job for that worker gets there when the fault is over.
func isolated(t *testing.T, fault func(*links.Link) error, during func(*scenario, string)) {
	s, worker := patient(t)
	stays := s.submit("6s", on(worker), failover(v1alpha1.FailoverHold))
	s.Runs(stays, worker, 1)
	before := s.batch()

	s.fault(worker, fault)
	if during != nil {
		during(s, worker)
	}
	late := s.submit("1s", on(worker), failover(v1alpha1.FailoverHold))
	if took := s.batch(); took > 2*before+2*time.Second {
		t.Errorf("jobs of another worker took %v during the fault, and %v before", took, before)
	}

	s.heal(worker)
	s.ends(stays, late)
	s.Attempt(stays, 1)
	s.Attempt(late, 1)
}

// batch returns how long some jobs on south take.
func (s *scenario) batch() time.Duration {
	s.Helper()
	began := time.Now()
	var jobs []*trainer.TrainJob
	for range 4 {
		jobs = append(jobs, s.submit("1s", on(south)))
	}
	s.ends(jobs...)
	return time.Since(began)
}

func unreachable(s *scenario, worker string) {
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonUnreachable)
}

// A worker's API server accepts connections and never answers.
func TestFaultHang(t *testing.T) { isolated(t, (*links.Link).Hang, unreachable) }

// Every answer takes more than a second.
func TestFaultSlow(t *testing.T) {
	isolated(t, func(l *links.Link) error { return l.Latency(1200*time.Millisecond, 300*time.Millisecond) }, nil)
}

// The network to a worker has a low bandwidth.
func TestFaultNarrow(t *testing.T) {
	isolated(t, func(l *links.Link) error { return l.Bandwidth(20) }, nil)
}

// Every connection is reset.
func TestFaultReset(t *testing.T) { isolated(t, (*links.Link).Reset, unreachable) }

// Connections are refused.
func TestFaultRefuse(t *testing.T) {
	isolated(t, func(l *links.Link) error { l.Refuse(); return nil }, unreachable)
}

// A worker answers 429 with Retry-After to everything.
func TestFaultThrottled(t *testing.T) {
	isolated(t, intercept(links.Answer(http.StatusTooManyRequests, 1)), nil)
}

// A worker answers 500 to everything.
func TestFaultServerErrors(t *testing.T) {
	isolated(t, intercept(links.Answer(http.StatusInternalServerError, 0)), unreachable)
}

// A worker's watches end every second, in an orderly way. That is normal: the worker stays Ready, and gets jobs.
func TestFaultWatchesDropped(t *testing.T) {
	s, worker := with(t)
	s.fault(worker, intercept(links.Watches(links.EndAfter(time.Second))))
	jobs := []*trainer.TrainJob{s.submit("2s", on(worker)), s.submit("4s", on(worker)), s.submit("6s", on(worker))}
	s.ends(jobs...)
	for _, job := range jobs {
		s.Attempt(job, 1)
	}
}

// A worker's watches end every second. Half of them cannot continue: the answer is 410 Gone, and the caches list again.
func TestFaultGone(t *testing.T) {
	s, worker := patient(t)
	s.fault(worker, intercept(links.Forget(time.Second)))
	jobs := []*trainer.TrainJob{s.submit("2s", on(worker)), s.submit("4s", on(worker)), s.submit("6s", on(worker))}
	s.ends(jobs...)
	for _, job := range jobs {
		s.Attempt(job, 1)
	}
}

func intercept(handler links.Handler) func(*links.Link) error {
	return func(l *links.Link) error { l.Intercept(handler); return nil }
}
