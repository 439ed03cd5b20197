// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/history"
	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/yard"
)

var (
	seed     = flag.Uint64("seed", 0, "What happens follows from it. 0: drawn.")
	duration = flag.Duration("duration", 2*time.Minute, "For how long things break.")
	rate     = flag.Float64("rate", 5, "Jobs per second, as long as not too many live.")
)

const (
	// shortSeed and shortDuration are for a soak with -short, which CI runs. They were searched for: with this seed more
	// kinds of things break in this time than with others (TestShortPlan).
	shortSeed     = 28858
	shortDuration = 45 * time.Second

	startTimeout = 5 * time.Minute
	// endTimeout is for all jobs to end when nothing is broken any more.
	endTimeout = 4 * time.Minute
	// recoverTimeout is for what was broken.
	recoverTimeout = 2 * time.Minute
	// fenceMargin covers changes of leader of agents that are killed while they are cut off.
	fenceMargin = 16 * time.Second
)

var workers = []string{"west", "east", "south"}

// Random faults under load: no job runs twice, none is lost, and nothing is left.
func TestSoak(t *testing.T) {
	if testing.Short() {
		*seed, *duration = shortSeed, shortDuration
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d, for %v", *seed, *duration)
	fmt.Printf("soak: -seed %d -duration %v\n", *seed, *duration)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	w, err := world.Start(ctx, world.Options{
		Dir: os.Getenv("FAULTS_DIR"), Workers: workers, Agents: 2, ManagerArgs: []string{"--fence-margin=" + fenceMargin.String()},
		Progress: yard.Print,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	run := &run{T: t, world: w, crew: &crew{world: w}, began: time.Now()}
	run.all()
}

// run is one soak.
type run struct {
	*testing.T
	world *world.World
	crew  *crew
	began time.Time

	mu         sync.Mutex
	faults     []string      // what has happened, in order; under mu
	longest    time.Duration // recovery; under mu
	longestOf  string        // under mu
	broken     int           // faults that were made; under mu
	unrepaired []string      // under mu
}

func (r *run) all() {
	var lanes sync.WaitGroup
	for number, name := range append(slices.Clone(workers), string(hubLane)) {
		faults := faultsOf(*seed, lane(name), uint64(number), *duration)
		lanes.Go(func() { r.lane(faults) })
	}
	load := newLoad(r)
	load.come(*duration)
	lanes.Wait()
	quiet := time.Now()
	load.end(endTimeout)
	took := time.Since(quiet)
	load.check()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.unrepaired {
		r.Error(text)
	}
	r.Logf("soak: seed %d: %d jobs (%s), %d faults, longest recovery %v (%s); all jobs had ended %v after the last fault",
		*seed, load.count, load.outcomes(), r.broken, r.longest.Round(10*time.Millisecond), r.longestOf, took.Round(100*time.Millisecond))
	if r.Failed() {
		r.Logf("again: go test ./soak -run TestSoak -seed %d -duration %v\nwhat happened:\n%s", *seed, *duration, strings.Join(r.faults, "\n"))
	}
}

// lane makes one fault after the other.
func (r *run) lane(faults []fault) {
	ctx := context.Background()
	for _, f := range faults {
		<-time.After(time.Until(r.began.Add(f.at))) // The plan's time: a fault comes at any moment of the jobs' lives.
		r.note("%s begins", f)
		end, err := r.crew.begin(ctx, f)
		if err != nil {
			r.note("%s cannot begin: %v", f, err) // For example a process that was to be killed does not run.
		}
		if end == nil {
			continue
		}
		<-time.After(f.last) // How long it lasts was drawn.
		if err := end(ctx); err != nil {
			r.repair("%s cannot end: %v", f, err)
			continue
		}
		r.recover(ctx, f)
	}
}

// recover waits until a lane works again.
func (r *run) recover(ctx context.Context, f fault) {
	began := time.Now()
	if !eventually(50*time.Millisecond, recoverTimeout, func() bool { return r.crew.ready(ctx, f.lane) }) {
		r.repair("%s: %s does not recover", f, f.lane)
		return
	}
	took := time.Since(began)
	r.note("%s is over, and recovered from after %v", f, took.Round(10*time.Millisecond))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken++
	if took > r.longest {
		r.longest, r.longestOf = took, fmt.Sprintf("%s of %s", f.kind, f.lane)
	}
}

// eventually calls check until it is true, at most for the timeout. It says whether it was.
func eventually(interval, timeout time.Duration, check func() bool) bool {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for deadline := time.Now().Add(timeout); !check(); <-ticker.C {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func (r *run) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf("%7.2fs ", time.Since(r.began).Seconds())+fmt.Sprintf(format, args...))
}

func (r *run) repair(format string, args ...any) {
	r.note(format, args...)
	fmt.Printf(format+"\n", args...) // The messages of the end may come long after it.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unrepaired = append(r.unrepaired, fmt.Sprintf(format, args...))
}

const (
	// most is how many jobs live at a time.
	most = 40
	// round is how often the load looks which jobs have ended.
	round = 250 * time.Millisecond
	// requestTimeout is for requests to a hub that may be broken.
	requestTimeout = 2 * time.Second
	// described is how many jobs are described when something is wrong.
	described = 5
)

// job is a live job.
type job struct {
	world.Job
	shape
	began     time.Time
	deleted   string // how it has ended, when its deletion was asked for
	suspended time.Time
	resumed   bool
}

// load are the jobs and their users.
type load struct {
	*run
	shapes *jobs
	count  int
	alive  map[string]*job
	gone   []world.Job // that have ended, and were deleted
	ended  map[string]int
	wrong  int
}

func newLoad(r *run) *load {
	return &load{run: r, shapes: newJobs(*seed), alive: map[string]*job{}, ended: map[string]int{}}
}

// come submits jobs until the time is over.
func (l *load) come(d time.Duration) {
	next, look := time.NewTicker(time.Duration(float64(time.Second) / *rate)), time.NewTicker(round)
	defer next.Stop()
	defer look.Stop()
	over := time.After(time.Until(l.began.Add(d)))
	for {
		select {
		case <-over:
			return
		case <-look.C:
			l.look()
		case <-next.C:
			if len(l.alive) < most {
				l.submit()
			}
		}
	}
}

// submit creates a job. If the hub does not take it, the hub is broken.
func (l *load) submit() {
	s := l.shapes.next()
	spec := yard.Job{Name: fmt.Sprintf("soak-%d", l.count), Nodes: s.nodes, GPUs: 1, RunFor: s.runFor.String()}
	if s.fails {
		spec.Fail = "a fault of the test"
	}
	object := spec.TrainJob()
	if s.slowEnd {
		pod := object.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
		pod.Metadata.Annotations[clusters.TerminateForAnnotation] = "1s"
	}
	if s.failover != "" {
		metav1.SetMetaDataLabel(&object.ObjectMeta, world.LabelFailover, string(s.failover))
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	l.count++
	if err := l.world.Hub.Create(ctx, object); err != nil {
		// It may be there all the same: the next look finds it, or does not.
		object.UID = ""
	}
	l.alive[object.Name] = &job{Job: world.Job{Key: client.ObjectKeyFromObject(object), UID: object.UID}, shape: s, began: time.Now()}
}

// look does what users do, and lets go of jobs that have ended.
func (l *load) look() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	var list trainer.TrainJobList
	if err := l.world.Hub.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return // The hub is away.
	}
	there := map[string]*trainer.TrainJob{}
	for i := range list.Items {
		there[list.Items[i].Name] = &list.Items[i]
	}
	for name, j := range l.alive {
		object := there[name]
		switch {
		case object == nil && j.deleted != "":
			l.let(j, j.deleted)
		case object == nil && j.UID == "":
			l.let(j, "refused")
		case object == nil:
			l.Errorf("TrainJob %s is not there any more: %+v\n%s", name, j.shape, l.world.Recorder.Describe(j.UID))
			l.let(j, "lost")
		default:
			j.UID = object.UID
			l.use(ctx, j, object)
		}
	}
}

// use is what a user does with a job.
func (l *load) use(ctx context.Context, j *job, object *trainer.TrainJob) {
	age := time.Since(j.began)
	switch {
	case object.DeletionTimestamp != nil:
	case ended(object) != "":
		d := &v1alpha1.Dispatch{}
		err := l.world.Hub.Get(ctx, j.Key, d)
		_, deleted := l.crew.deleted.Load(j.Key)
		gone := deleted && apierrors.IsNotFound(err) // A job that has ended gets no other.
		if !gone && (err != nil || !d.IsFinished()) {
			return // It says so a moment later.
		}
		if j.deleted == "" {
			l.judge(j)
		}
		l.delete(ctx, j, object, ended(object))
	case j.deletedAfter > 0 && age > j.deletedAfter:
		l.delete(ctx, j, object, "deleted")
	case j.suspendedAfter > 0 && age > j.suspendedAfter && j.suspended.IsZero():
		if l.suspend(ctx, object, true) {
			j.suspended = time.Now()
		}
	case !j.suspended.IsZero() && !j.resumed && time.Since(j.suspended) > 2*time.Second:
		j.resumed = l.suspend(ctx, object, false)
	}
}

// delete asks for the deletion of a job, again and again until it is seen: whatever comes back, it may have been
// carried out.
func (l *load) delete(ctx context.Context, j *job, object *trainer.TrainJob, how string) {
	if j.deleted == "" {
		j.deleted = how
	}
	_ = l.world.Hub.Delete(ctx, object)
}

// suspend suspends or resumes a job only if it is unchanged: a job that has ended by then must not be written any more.
func (l *load) suspend(ctx context.Context, object *trainer.TrainJob, suspend bool) bool {
	before := object.DeepCopy()
	object.Spec.Suspend = ptr.To(suspend)
	return l.world.Hub.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) == nil
}

func ended(object *trainer.TrainJob) string {
	for _, kind := range []string{trainer.TrainJobComplete, trainer.TrainJobFailed} {
		if meta.IsStatusConditionTrue(object.Status.Conditions, kind) {
			return kind
		}
	}
	return ""
}

// let lets a job go.
func (l *load) let(j *job, how string) {
	delete(l.alive, j.Key.Name)
	l.ended[how]++
	if j.UID != "" {
		l.gone = append(l.gone, j.Job)
		if how == "deleted" {
			l.judge(j)
		}
	}
}

// judge looks at what has happened to a job.
func (l *load) judge(j *job) {
	faults := l.world.Faults(j.Job)
	if j.failover == v1alpha1.FailoverImmediate {
		faults = slices.DeleteFunc(faults, func(fault string) bool {
			return slices.ContainsFunc(l.world.Recorder.Overlaps(j.UID), func(o history.Overlap) bool { return o.String() == fault })
		})
	}
	for _, fault := range faults {
		l.Errorf("TrainJob %s: %s", j.Key.Name, fault)
	}
	if len(faults) == 0 {
		return
	}
	if l.wrong++; l.wrong <= described {
		l.Logf("TrainJob %s: %+v\n%s", j.Key.Name, j.shape, l.world.Recorder.Describe(j.UID))
	}
}

// end waits until all jobs have ended. Nothing is broken any more.
func (l *load) end(timeout time.Duration) {
	eventually(round, timeout, func() bool {
		l.look()
		return len(l.alive) == 0
	})
	ctx := context.Background()
	for i, name := range slices.Sorted(maps.Keys(l.alive)) {
		j := l.alive[name]
		_, why, err := l.world.Ended(ctx, j.Job)
		l.Errorf("TrainJob %s has not ended: %s %v", name, why, err)
		if i < described {
			l.Logf("TrainJob %s: %+v\n%s", name, j.shape, l.world.Recorder.Describe(j.UID))
		}
		if err := l.world.Hub.Delete(ctx, &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: j.Key.Namespace, Name: name}}); err != nil && !apierrors.IsNotFound(err) {
			l.Error(err)
		}
	}
}

// check waits until nothing is left of the jobs that were deleted. A manager that has just begun to lead keeps the
// record of a copy for 65 s whose creation its predecessor may have sent.
func (l *load) check() {
	var left []string
	var err error
	if !eventually(round, endTimeout, func() bool {
		left, err = l.world.Left(context.Background(), l.gone...)
		return err == nil && len(left) == 0
	}) {
		l.Errorf("left of deleted jobs: %v\n%s", err, strings.Join(left, "\n"))
		l.explain(left)
	}
}

// explain says what happened to jobs that have left something behind, and what the hub says about unknown copies.
func (l *load) explain(left []string) {
	for _, j := range l.gone {
		if isLeft := func(what string) bool { return strings.HasSuffix(what, " "+j.Key.String()) }; slices.ContainsFunc(left, isLeft) {
			l.Logf("TrainJob %s:\n%s", j.Key.Name, l.world.Recorder.Describe(j.UID))
		}
	}
	var workers v1alpha1.WorkerClusterList
	if err := l.world.Hub.List(context.Background(), &workers); err != nil {
		l.Error(err)
	}
	for i := range workers.Items {
		l.Logf("unknown copies on %s: %+v", workers.Items[i].Name, workers.Items[i].Status.UnknownCopies)
	}
}

func (l *load) outcomes() string {
	var texts []string
	for _, how := range slices.Sorted(maps.Keys(l.ended)) {
		texts = append(texts, fmt.Sprintf("%d %s", l.ended[how], how))
	}
	return strings.Join(texts, ", ")
}
