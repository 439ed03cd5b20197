// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/yard"
)

// While jobs come and go and others run, wait, end, are suspended and are evicted, everything goes from the older
// version to this one and back, as docs/upgrade.md says. At each step both workers run jobs, so each pair of versions
// of manager and agent works. In the end no job was lost, none ran twice, and none that ran was disturbed.
func TestUpgradeAndRollback(t *testing.T) {
	s := &world.Scenario{T: t, World: w}
	t.Cleanup(func() { finish(s) })
	runners := startRunners(t, s)
	stop := stream(t, s)

	before := assemble(t, s, "upgrade")
	steps(t, s, "upgrade", runners, before, []step{
		{"the CRDs and rights of a worker", func(ctx context.Context) error { return w.ApplyAgents(ctx, w.Yard.Workers[east], newer) }},
		{"the agents of a worker", func(ctx context.Context) error { return w.ReplaceAgents(ctx, w.Yard.Workers[east], newer) }},
		{"the rights of the hub there", func(ctx context.Context) error { return w.ApplyWorker(ctx, w.Yard.Workers[east], newer) }},
		{"the CRDs and rights of the hub", func(ctx context.Context) error { return w.ApplyHub(ctx, newer) }},
		{"the manager", manager(newer)},
		{"the words about a worker without the new rights", says(west, "devices of Dynamic Resource Allocation are not counted")},
		{"the CRDs and rights of the other worker", func(ctx context.Context) error { return w.ApplyAgents(ctx, w.Yard.Workers[west], newer) }},
		{"the agents of the other worker", func(ctx context.Context) error { return w.ReplaceAgents(ctx, w.Yard.Workers[west], newer) }},
		{"the rights of the hub there", func(ctx context.Context) error { return w.ApplyWorker(ctx, w.Yard.Workers[west], newer) }},
		{"the hub's own agent", agentOfHub(newer)},
	})
	before.goOn(t, s)
	before.leave(t)

	before = assemble(t, s, "rollback")
	steps(t, s, "rollback", runners, before, []step{
		{"the agents of a worker", func(ctx context.Context) error { return w.ReplaceAgents(ctx, w.Yard.Workers[west], older) }},
		{"the manager", manager(older)},
		{"the agents of the other worker", func(ctx context.Context) error { return w.ReplaceAgents(ctx, w.Yard.Workers[east], older) }},
		{"the CRDs and rights of the hub", func(ctx context.Context) error {
			w.Recorder.Hide(newFields)
			return w.ApplyHub(ctx, older)
		}},
		{"the CRDs and rights of the workers", crdsOfWorkers(older)},
		{"the hub's own agent", agentOfHub(older)},
	})
	before.goOn(t, s)
	runners.check(t)
	stop()

	// The last that waits is placed as soon as it has room.
	for _, job := range []client.Object{before.moves, runners.jobs["runs-immediate"]} {
		check.Must(t, w.Hub.Delete(t.Context(), job))
	}
	w.Eventually(t, func(g gomega.Gomega) {
		release(t.Context(), g, west, before.moves)
		g.Expect(w.PodsOf(g, west, before.moves)).To(gomega.BeEmpty())
	})
	s.Ends(trainer.TrainJobComplete, before.large)
}

// step is one step of a change from one version to another.
type step struct {
	what string
	do   func(ctx context.Context) error
}

// steps takes the steps. After each of them both workers run a job from begin to end, and all other jobs are as before.
func steps(t *testing.T, s *world.Scenario, name string, runners *runners, jobs *cast, all []step) {
	t.Helper()
	for i, step := range all {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		err := step.do(ctx)
		cancel()
		if err != nil {
			t.Fatalf("%s: %s: %v", name, step.what, err)
		}
		for _, worker := range []string{east, west} {
			ready(t, worker)
		}
		probe := s.Submit(yard.Job{Name: fmt.Sprintf("%s-probe-%d", name, i), RunFor: "100ms"}, on(west))
		s.Ends(trainer.TrainJobComplete, probe)
		runners.check(t)
		jobs.check(t)
		showWithBoth(t)
		t.Logf("%s: %s: %v", name, step.what, time.Since(began).Round(100*time.Millisecond))
	}
}

// manager replaces the manager as a rolling update does: both run for a while, and one leads.
func manager(version yard.Version) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		before, err := leader(ctx)
		if err != nil {
			return err
		}
		w.Managers.Use(version)
		if err := w.Managers.Replace(ctx); err != nil {
			return err
		}
		return wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
			now, err := leader(ctx)
			return now != "" && now != before, err
		})
	}
}

// newFields takes off the fields that the older version's CRD does not have.
func newFields(d *v1alpha1.Dispatch) {
	d.Spec.Counted, d.Spec.Domain, d.Spec.AddedNodes = nil, nil, 0
	for i := range d.Spec.PodSets {
		d.Spec.PodSets[i].HostPorts, d.Spec.PodSets[i].UnmergedRequests = nil, nil
	}
	d.Status.Stops = 0
	for i := range d.Status.History {
		attempt := &d.Status.History[i]
		attempt.StartTime, attempt.GPUSeconds, attempt.ShareSeconds = nil, nil, nil
	}
	for i := range d.Status.Refusals {
		d.Status.Refusals[i].Domain = nil
	}
	for i := range d.Status.Explanation {
		d.Status.Explanation[i].Domain = nil
	}
}

// says waits until the hub says something about a worker that takes jobs.
func says(worker, words string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
			object := &v1alpha1.WorkerCluster{}
			if err := w.Hub.Get(ctx, client.ObjectKey{Name: worker}, object); err != nil {
				return false, err
			}
			ready := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.WorkerClusterReady)
			return ready != nil && ready.Status == metav1.ConditionTrue && strings.Contains(ready.Message, words), nil
		})
	}
}

func leader(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "trainyard-system", Name: "manager.trainyard.dev"}}
	if err := w.Hub.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil || lease.Spec.HolderIdentity == nil {
		return "", err
	}
	return *lease.Spec.HolderIdentity, nil
}

func agentOfHub(version yard.Version) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return errors.Join(w.ApplyAgents(ctx, w.Yard.Hub, version), w.ReplaceAgents(ctx, w.Yard.Hub, version))
	}
}

func crdsOfWorkers(version yard.Version) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		var errs []error
		for _, worker := range w.Yard.Workers {
			errs = append(errs, w.ApplyAgents(ctx, worker, version), w.ApplyWorker(ctx, worker, version))
		}
		return errors.Join(errs...)
	}
}

// streamInterval is how often a short job comes.
const streamInterval = 2 * time.Second

// stream submits short jobs for either worker, one after the other, until stop is called. stop waits until they have
// ended.
func stream(t *testing.T, s *world.Scenario) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan []*trainer.TrainJob)
	var failed atomic.Pointer[error]
	go func() {
		var jobs []*trainer.TrainJob
		defer func() { ended <- jobs }()
		for i := 0; ctx.Err() == nil; i++ {
			job := yard.Job{Name: fmt.Sprintf("stream-%d", i), RunFor: "2s"}.TrainJob()
			if err := s.Create(ctx, job); err != nil {
				if ctx.Err() == nil {
					failed.Store(&err)
				}
				return
			}
			jobs = append(jobs, job)
			select {
			case <-time.After(streamInterval):
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		t.Helper()
		cancel()
		jobs := <-ended
		if err := failed.Load(); err != nil {
			t.Fatal(*err)
		}
		s.Ends(trainer.TrainJobComplete, jobs...)
		for _, job := range jobs {
			// Some were on east when it was drained, and so ran twice, one after the other.
			if got := len(w.Recorder.Intervals(job.UID)); got < 1 || got > 2 {
				t.Errorf("%s had %d copies:\n%s", job.Name, got, w.Recorder.Describe(job.UID))
			}
		}
		t.Logf("%d short jobs have ended", len(jobs))
	}
}

// showWithBoth fails the test unless the plugins of both versions show what is there.
func showWithBoth(t *testing.T) {
	t.Helper()
	module, err := clusters.ModuleDir(t.Context(), "github.com/trainyard/trainyard")
	check.Must(t, err)
	for _, dir := range []string{older.Programs, filepath.Join(module, "bin")} {
		for args, want := range map[string][]string{
			"clusters": {east, west}, "queue -A": {"-first", "-second", "-large"}, "explain runs-fenced": {east, "Running"},
		} {
			command := exec.CommandContext(t.Context(), filepath.Join(dir, "kubectl-trainyard"),
				slices.Concat(strings.Fields(args), []string{"--kubeconfig", w.Yard.Hub.KubeconfigPath})...)
			output, err := command.CombinedOutput()
			for _, word := range want {
				if err != nil || !strings.Contains(string(output), word) {
					t.Errorf("%s %s lacks %q: %v\n%s", command.Path, args, word, err, output)
				}
			}
		}
	}
}

// finish deletes all jobs, waits until nothing of them is left, and says what was wrong with them.
func finish(s *world.Scenario) {
	s.Helper()
	s.Delete()
	if !s.Failed() { // Otherwise pods that the test did not let end keep their jobs.
		s.Gone()
	}
	s.Report()
}

const (
	// east is cheaper than west, so jobs that may go to both go to east while there is room.
	east, west = "east", "west"
	// fenceAfter is longer than any part of an upgrade for which a worker gets no answers, on a busy machine too.
	fenceAfter = 15 * time.Minute

	// timeout is for conditions that come in seconds on an idle machine.
	timeout = 10 * time.Minute
	poll    = 50 * time.Millisecond
)

// patientLease lets processes keep their leases on a busy machine too: this test is not about losing them. A process
// that is stopped gives its lease back, so the next one leads at once.
var patientLease = []string{
	"--leader-election-lease-duration=90s", "--leader-election-renew-deadline=60s", "--leader-election-retry-period=1s",
}

// w is the world of the test. It starts with the older version.
var w *world.World

// older and newer are the versions. newer is this one.
var older, newer yard.Version

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	dir := os.Getenv("TRAINYARD_UPGRADE_FROM")
	if dir == "" {
		return nil, errors.New("TRAINYARD_UPGRADE_FROM does not name the older version: run make test-upgrade")
	}
	older = yard.Version{Root: filepath.Join(dir, "source"), Programs: filepath.Join(dir, "programs")}
	w, err = world.Start(ctx, world.Options{
		Timeout: timeout, Poll: poll,
		Dir: os.Getenv("FAULTS_DIR"), Workers: []string{east, west}, Agents: 2, Version: older,
		ManagerArgs: []string{"--worker-timeout=30s"}, Lease: patientLease,
		FenceAfter: map[string]time.Duration{east: fenceAfter, west: fenceAfter}, Progress: yard.Print,
	})
	if err != nil {
		return nil, err
	}
	return w.Stop, nil
}
