// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package crashes

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/yard"
)

// life is what happens to jobs.
type life struct {
	*testing.T
	name     string
	runFor   string
	failover v1alpha1.Failover
	jobs     []*trainer.TrainJob
}

// The manager is killed before and after each write that it makes for a job that is placed, copied, runs, ends and is
// deleted.
func TestCrashesOfAJobThatEnds(t *testing.T) {
	onlyWest(t)
	crashes(t, life{name: "ends", runFor: "1s", failover: v1alpha1.FailoverHold}, func(l *life) {
		l.complete()
		l.delete()
	})
}

// The same for a job that is deleted while it runs.
func TestCrashesOfADeletion(t *testing.T) {
	onlyWest(t)
	crashes(t, life{name: "deleted", runFor: clusters.RunForever, failover: v1alpha1.FailoverHold}, func(l *life) {
		l.run()
		l.delete()
	})
}

// The same for a job whose worker is cut off, and comes back when the job has been placed again.
func TestCrashesOfAFailover(t *testing.T) {
	onlyWest(t) // At first.
	crashes(t, life{name: "moved", runFor: clusters.RunForever, failover: v1alpha1.FailoverFenced}, func(l *life) {
		l.runOn(west)
		cordonSouth(t, false)
		check.Must(l, w.Links[west].Blackhole())
		l.runOn(south)
		cordonSouth(t, true)
		check.Must(l, w.Links[west].Heal())
		w.Eventually(l, func(g gomega.Gomega) {
			for _, job := range l.jobs {
				err := w.Workers[west].Get(context.Background(), client.ObjectKeyFromObject(job), &trainer.TrainJob{})
				g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
				g.Expect(err).To(gomega.HaveOccurred(), "the copy of the first attempt is still there")
			}
		})
		l.delete()
	})
}

// onlyWest keeps the jobs of a test on west while a new manager is not connected to west yet. On another worker their
// writes would differ from the writes that were found.
func onlyWest(t *testing.T) {
	t.Helper()
	cordonSouth(t, true)
	t.Cleanup(func() { cordonSouth(t, false) })
}

func cordonSouth(t *testing.T, on bool) {
	t.Helper()
	err := w.EditWorker(context.Background(), south, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Unschedulable = on })
	check.Must(t, err)
}

// rounds is how often points are tried. On a busy machine the agent may delete a copy that the manager would otherwise
// have deleted.
const rounds = 8

// crashes lets one job live once to find its writes. Then it lets jobs live that each have their own point, until the
// manager was killed before and after each kind of write.
func crashes(t *testing.T, of life, live func(*life)) {
	t.Helper()
	of.T = t
	dry := of
	dry.name += "-dry"
	armed.set(dry.name)
	dry.submit(1)
	live(&dry)
	dry.check()
	writes := armed.writesOf(dry.jobs[0].Name)
	for i, write := range writes {
		t.Logf("write %d: %s", i+1, write)
	}
	points := pointsOf(writes)
	missing := kindsOf(points)
	kills := 0
	for round := 1; round <= rounds && len(missing) > 0; round++ {
		l := of
		l.name += strconv.Itoa(round)
		armed.set(l.name)
		points = slices.DeleteFunc(points, func(p Point) bool { return !missing[p.kind()] })
		for i, point := range points {
			armed.at(fmt.Sprintf("%s-%d", l.name, i), point)
		}
		l.submit(len(points))
		live(&l)
		l.check()
		for _, point := range l.sprung() {
			kills++
			delete(missing, point.kind())
		}
	}
	for kind := range missing {
		t.Errorf("the manager was never killed %s", kind)
	}
	t.Logf("%d crashes", kills)
}

// pointsOf returns the points before and after each of the writes.
func pointsOf(writes []string) (points []Point) {
	for i, write := range writes {
		nth := occurrences(writes[:i+1], write)
		points = append(points, Point{Write: write, Nth: nth}, Point{Write: write, Nth: nth, After: true})
	}
	return points
}

// kindsOf returns the kinds of points. A second write of one kind may not happen in each life.
func kindsOf(points []Point) map[string]bool {
	kinds := map[string]bool{}
	for _, point := range points {
		kinds[point.kind()] = true
	}
	return kinds
}

// sprung are the points at which the manager was killed.
func (l *life) sprung() (points []Point) {
	l.Helper()
	for _, job := range l.jobs {
		point, sprung := armed.pointOf(job.Name)
		if sprung {
			points = append(points, point)
		} else {
			l.Logf("%s: was never %s", job.Name, point)
		}
	}
	return points
}

// submit creates the jobs, which go to west first.
func (l *life) submit(count int) {
	l.Helper()
	for i := range count {
		job := yard.Job{Name: fmt.Sprintf("%s-%d", l.name, i), GPUs: 1, RunFor: l.runFor}.TrainJob()
		metav1.SetMetaDataLabel(&job.ObjectMeta, world.LabelFailover, string(l.failover))
		l.jobs = append(l.jobs, job)
		check.Must(l, w.Hub.Create(l.Context(), job))
	}
}

// run waits until all jobs can run in their first attempt, and the hub knows that they do.
func (l *life) run() {
	l.Helper()
	l.running(gomega.HaveField("Spec.Attempt", int32(1)))
}

// runOn waits until all jobs can run on a worker, and the hub knows that they do. On a busy machine an agent may refuse
// the copy of a Fenced job, because its creation has taken too long, so the number of attempts is not sure.
func (l *life) runOn(worker v1alpha1.ClusterName) {
	l.Helper()
	l.running(gomega.HaveField("Spec.Cluster", worker))
}

func (l *life) running(dispatch gomega.OmegaMatcher) {
	l.Helper()
	w.Eventually(l, func(g gomega.Gomega) {
		for _, job := range l.jobs {
			d := w.DispatchOf(g, job)
			g.Expect(d).To(dispatch)
			g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
			g.Expect(w.Recorder.CanRun(job.UID)).To(gomega.BeTrue())
		}
	})
}

func (l *life) complete() {
	l.Helper()
	w.Eventually(l, func(g gomega.Gomega) {
		for _, job := range l.jobs {
			g.Expect(w.Hub.Get(context.Background(), client.ObjectKeyFromObject(job), job)).To(gomega.Succeed())
			g.Expect(meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue(), job.Name)
			d := w.DispatchOf(g, job)
			g.Expect(d.IsFinished()).To(gomega.BeTrue(), job.Name)
			g.Expect(d.Spec.Attempt).To(gomega.BeEquivalentTo(1), job.Name)
		}
	})
}

// delete deletes the jobs, and waits until nothing is left of them.
func (l *life) delete() {
	l.Helper()
	var jobs []world.Job
	for _, job := range l.jobs {
		jobs = append(jobs, world.Job{Key: client.ObjectKeyFromObject(job), UID: job.UID})
		check.Must(l, w.Hub.Delete(context.Background(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}
	w.Eventually(l, func(g gomega.Gomega) {
		left, err := w.Left(context.Background(), jobs...)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(left).To(gomega.BeEmpty(), "what is left of deleted jobs")
	})
}

// check looks at what has happened to all jobs.
func (l *life) check() {
	l.Helper()
	for _, job := range l.jobs {
		faults := w.Faults(world.Job{Key: client.ObjectKeyFromObject(job), UID: job.UID})
		for _, fault := range faults {
			l.Errorf("TrainJob %s: %s", job.Name, fault)
		}
		if len(faults) > 0 {
			l.Logf("TrainJob %s:\n%s", job.Name, w.Recorder.Describe(job.UID))
		}
	}
}

const (
	// west is what is lost, and south where jobs go then.
	west, south = "west", "south"

	poll = 100 * time.Millisecond
)

// timeout is for a whole batch of jobs, with a start of the manager for each.
var timeout time.Duration

func init() {
	flag.DurationVar(&timeout, "patience", 4*time.Minute, "How long to wait for a batch of jobs.")
}

var (
	w *world.World
	// armed counts writes, and mended is how often the manager was started again.
	armed  *trap
	mended mender
)

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	w, err = world.Start(ctx, world.Options{
		Timeout: timeout, Poll: poll,
		Dir: os.Getenv("FAULTS_DIR"), Workers: []string{west, south}, GPUs: 16, GracePeriod: 6 * time.Second,
		// The agent stops thirty copies at a time. The manager would not delete copies that the agent had to delete.
		FenceAfter: map[string]time.Duration{west: 2 * world.FenceAfter},
		// A killed manager holds no lease for which the next manager would have to wait.
		ManagerArgs: []string{"--leader-elect=false", "--worker-probe-interval=250ms", "--worker-timeout=1s", "--fence-margin=1s"},
		Progress:    yard.Print,
	})
	if err != nil {
		return nil, err
	}
	armed = newTrap(mended.kill)
	for name, link := range w.Links {
		link.Always(armed.on(name))
	}
	return w.Stop, nil
}

// mender kills the manager and starts it again.
type mender struct {
	mu    sync.Mutex
	kills int // under mu
}

// kill ends the manager. When kill returns, the next manager runs.
func (m *mender) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kills++
	if err := w.Managers.Kill(); err != nil {
		panic(err)
	}
}
