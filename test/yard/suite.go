// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// Suite is a yard that the tests of a package share, and what these tests do most often. Its methods also work in a
// Cleanup of a test.
type Suite struct {
	// Options are the options of the yard.
	Options Options
	// Timeout is how long Eventually waits, and Poll is the time between the first two checks, see check.Within.
	Timeout, Poll time.Duration

	*Yard
	// Hub is an admin client of the hub. Workers are admin clients of the workers.
	Hub     client.WithWatch
	Workers map[string]client.WithWatch
}

// Start starts the yard, with the runtimes of its jobs. It can be the start that Main is given.
func (s *Suite) Start(ctx context.Context) (stop func() error, err error) {
	if s.Yard, err = Start(ctx, s.Options); err != nil {
		return nil, err
	}
	if s.Hub, s.Workers, err = s.Clients(); err != nil {
		return s.Stop, err
	}
	return s.Stop, InstallRuntimes(ctx, s.Yard.Hub)
}

// Eventually fails the test unless f succeeds in time. f reports what is missing through its Gomega.
func (s *Suite) Eventually(t testing.TB, f func(gomega.Gomega)) {
	t.Helper()
	check.Within(s.Timeout, s.Poll)(t, "", f)
}

// DispatchOf reads the Dispatch of a job.
func (s *Suite) DispatchOf(g gomega.Gomega, job client.Object) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{}
	g.Expect(s.Hub.Get(context.Background(), client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
	return d
}

// PodsOf reads the pods of a job's copy on a worker.
func (s *Suite) PodsOf(g gomega.Gomega, worker string, job client.Object) []corev1.Pod {
	var pods corev1.PodList
	g.Expect(s.Workers[worker].List(context.Background(), &pods, client.InNamespace(job.GetNamespace()),
		client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: job.GetName()})).To(gomega.Succeed())
	return pods.Items
}

// Edit changes a WorkerCluster, and repeats that until no other write comes between.
func (s *Suite) Edit(t testing.TB, worker string, change func(*v1alpha1.WorkerCluster)) {
	t.Helper()
	s.Eventually(t, func(g gomega.Gomega) {
		object := &v1alpha1.WorkerCluster{}
		g.Expect(s.Hub.Get(context.Background(), client.ObjectKey{Name: worker}, object)).To(gomega.Succeed())
		change(object)
		g.Expect(s.Hub.Update(context.Background(), object)).To(gomega.Succeed())
	})
}

// Needs skips a test if a worker has an older Kubernetes release than the test needs.
func (s *Suite) Needs(t testing.TB, worker, release string) {
	t.Helper()
	found, err := s.Yard.Workers[worker].Version()
	check.Must(t, err)
	if version.MustParseGeneric(found).LessThan(version.MustParseGeneric(release)) {
		t.Skipf("the worker %s has Kubernetes %s, and this takes %s", worker, found, release)
	}
}

// Cordon says whether a worker gets no new jobs. A worker that gets none does so until the test ends.
func (s *Suite) Cordon(t testing.TB, worker string, unschedulable bool) {
	t.Helper()
	set := func(to bool) { s.Edit(t, worker, func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = to }) }
	set(unschedulable)
	if unschedulable {
		t.Cleanup(func() { set(false) })
	}
}

// startTimeout is for all clusters and processes, on a machine that may be busy.
const startTimeout = 30 * time.Minute

// Main is the TestMain of a package whose tests share a yard: it calls start, runs the tests, calls stop, and exits.
// The context limits only the start. start may return a stop together with an error: Main calls it.
func Main(m *testing.M, start func(ctx context.Context) (stop func() error, err error)) {
	check.Parallel()               // It also parses the flags, which may say what start is to do.
	ctrl.SetLogger(logr.Discard()) // Clients log warnings of API servers. Without a logger they print a stack, once.
	code, err := run(m, start)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, start func(ctx context.Context) (stop func() error, err error)) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	stop, err := start(ctx)
	if stop != nil {
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// Print prints a line. It can be Options.Progress.
func Print(format string, args ...any) { fmt.Printf(format+"\n", args...) }
