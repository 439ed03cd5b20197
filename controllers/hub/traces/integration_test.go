// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package traces_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/trainyard/trainyard/api/v1alpha1"
	hubtraces "github.com/trainyard/trainyard/controllers/hub/traces"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/traces"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/collector"
	"github.com/trainyard/trainyard/test/stage"
	"github.com/trainyard/trainyard/views/trace"
)

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error { return s.InstallConfig(ctx, "namespace", "rbac") })

func TestMain(m *testing.M) { shared.Main(m) }

// scene has a collector, and managers that follow the records. The test writes the records, as other controllers do.
type scene struct {
	*stage.Scene
	collector *collector.Collector
	writer    records.Writer
	// requests counts those of the managers that do not fill their caches.
	requests atomic.Int32
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{Scene: shared.Get(t).Scene(t), collector: collector.Start(t)}
	s.writer = records.Writer{Hub: s.Hub.Admin, Clock: s.Clock, Accelerators: accelerators.Table{}}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.collector.HTTP)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10") // Milliseconds.
	return s
}

// start starts a manager that leads, with the rights of config/rbac.
func (s *scene) start(t *testing.T) (stop func()) {
	t.Helper()
	account := s.ManagerAccount()
	account.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			query := r.URL.Query()
			cached := r.Method == http.MethodGet && (query.Has("watch") || query.Has("limit") || !strings.Contains(r.URL.Path, "/namespaces/"))
			if !cached {
				s.requests.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	mgr := s.NewManager(t, rest.CopyConfig(account), func(o *ctrl.Options) { o.Cache.DefaultNamespaces = map[string]cache.Config{s.Namespace: {}} })
	exporter, err := traces.FromEnvironment(t.Context(), "trainyard-manager", logr.Discard())
	check.Must(t, err)
	check.Must(t, mgr.Add(exporter))
	check.Must(t, mgr.Add(&hubtraces.Follower{Cache: mgr.GetCache(), Exporter: exporter, Clock: s.Clock}))
	return stage.RunFor(t, mgr)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// runs writes that the copy of a Dispatch was created, has started and runs. Each takes three seconds.
func (s *scene) runs(t *testing.T, d *v1alpha1.Dispatch) {
	t.Helper()
	for _, step := range []func(*v1alpha1.DispatchStatus){
		func(status *v1alpha1.DispatchStatus) { record.SetCopied(status, d, s.Clock.Now()) },
		func(status *v1alpha1.DispatchStatus) { status.StartTime = s.now() },
		func(status *v1alpha1.DispatchStatus) { status.FirstRunningTime = s.now() },
	} {
		s.Clock.Step(3 * time.Second)
		check.Must(t, s.writer.UpdateStatus(t.Context(), d, step))
		*d = *s.Dispatch(t, d.Name)
	}
	s.Clock.Step(3 * time.Second)
}

func (s *scene) now() *metav1.Time {
	now := metav1.NewTime(s.Clock.Now())
	return &now
}

func (s *scene) end(t *testing.T, d *v1alpha1.Dispatch, outcome v1alpha1.Outcome) {
	t.Helper()
	check.Must(t, s.writer.End(t.Context(), d, outcome, "words"))
	*d = *s.Dispatch(t, d.Name)
	s.Clock.Step(3 * time.Second)
}

func (s *scene) finish(t *testing.T, d *v1alpha1.Dispatch) {
	t.Helper()
	end := &metav1.Condition{Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "R", Message: "words"}
	check.Must(t, s.writer.Finish(t.Context(), d, end, func(*v1alpha1.DispatchStatus) {}))
}

// change writes the spec.
func (s *scene) change(t *testing.T, d *v1alpha1.Dispatch, change func(*v1alpha1.Dispatch)) {
	t.Helper()
	after := d.DeepCopy()
	change(after)
	check.Must(t, s.writer.Patch(t.Context(), d, after))
	*d = *s.Dispatch(t, d.Name)
}

func (s *scene) place(t *testing.T, d *v1alpha1.Dispatch, worker v1alpha1.ClusterName) {
	t.Helper()
	s.change(t, d, func(d *v1alpha1.Dispatch) {
		chosen := d.Spec
		chosen.Cluster, chosen.Attempt = worker, record.NextAttempt(d.Spec.Attempt)
		record.Place(d, chosen, "words")
	})
}

// expect waits for the whole trace of a job.
func (s *scene) expect(t *testing.T, job *trainer.TrainJob, want string) {
	t.Helper()
	id := trace.IDOf(job.UID).String()
	check.Eventually(t, "trace of "+job.Name, func(g gomega.Gomega) { g.Expect(s.collector.Tree(id)).To(gomega.Equal(want)) })
	for _, span := range s.collector.Spans(id) {
		if span.To.Before(span.From) {
			t.Errorf("%s ends before it begins", span.Name)
		}
	}
}

const complete = `trainjob Complete
  attempt 1 east Complete
    waiting 1 east
    placed 1 east
    starting 1 east
    running 1 east`

// TestTraces checks whole traces, and that they take no request of the manager.
func TestTraces(t *testing.T) {
	s := newScene(t)
	s.start(t)
	t.Run("Complete", func(t *testing.T) {
		job := s.Submit(t, "complete")
		d := s.Place(t, job, "east")
		s.runs(t, d)
		s.finish(t, d)
		s.expect(t, job, complete)
	})
	t.Run("Refused", func(t *testing.T) {
		job := s.Submit(t, "refused")
		d := s.Place(t, job, "east")
		s.end(t, d, v1alpha1.OutcomeRejected)
		s.place(t, d, "west")
		s.runs(t, d)
		s.finish(t, d)
		s.expect(t, job, `trainjob Complete
  attempt 1 east Rejected
    waiting 1 east
  attempt 2 west Complete
    waiting 2 west
    placed 2 west
    starting 2 west
    running 2 west`)
	})
	t.Run("Moved", func(t *testing.T) {
		job := s.Submit(t, "moved")
		d := s.Place(t, job, "east")
		s.runs(t, d)
		s.change(t, d, func(d *v1alpha1.Dispatch) {
			record.Evict(d, v1alpha1.Eviction{Reason: v1alpha1.EvictionReason(v1alpha1.OutcomeDrained), Message: "words"})
		})
		check.Must(t, s.writer.UpdateStatus(t.Context(), d, func(status *v1alpha1.DispatchStatus) {
			record.SetEvicting(status, d, "words", s.Clock.Now())
		}))
		*d = *s.Dispatch(t, d.Name)
		s.Clock.Step(3 * time.Second)
		s.end(t, d, v1alpha1.OutcomeDrained)
		s.place(t, d, "west")
		s.runs(t, d)
		s.finish(t, d)
		s.expect(t, job, `trainjob Complete
  attempt 1 east Drained
    waiting 1 east
    placed 1 east
    starting 1 east
    running 1 east
    evicting 1 east
  attempt 2 west Complete
    placed 2 west
    starting 2 west
    running 2 west`)
	})
	check.Equal(t, 0, int(s.requests.Load()), "requests of the manager that are no reads of its caches")
}

// TestManagerIsKilled ends a manager while a job runs, and starts another one when the job has ended. The trace has no
// gap, and the spans that both have exported are the same.
func TestManagerIsKilled(t *testing.T) {
	s := newScene(t)
	stop := s.start(t)
	job := s.Submit(t, "killed")
	d := s.Place(t, job, "east")
	s.runs(t, d)
	id := trace.IDOf(job.UID).String()
	check.Eventually(t, "the spans of the first manager", func(g gomega.Gomega) { g.Expect(s.collector.Spans(id)).To(gomega.HaveLen(3)) })
	stop()
	before := s.collector.Spans(id)
	s.finish(t, d)
	check.Equal(t, 3, len(s.collector.Spans(id)), "spans while there is no manager")
	s.start(t)
	s.expect(t, job, complete)
	after := s.collector.Spans(id)
	check.Equal(t, 9, len(after), "spans of both managers: three, and six")
	ids := map[string]collector.Span{}
	for _, span := range after {
		if other, is := ids[span.ID]; is {
			check.Equal(t, other.Name+" "+other.From.String()+" "+other.To.String(), span.Name+" "+span.From.String()+" "+span.To.String(), "the span that was sent twice")
		}
		ids[span.ID] = span
	}
	check.Equal(t, 6, len(ids), "different spans")
	check.Equal(t, 3, len(before), "spans before")

	s.Clock.Step(time.Hour)
	s.start(t)
	other := s.Submit(t, "other")
	s.end(t, s.Place(t, other, "east"), v1alpha1.OutcomeRejected)
	check.Eventually(t, "a third manager", func(g gomega.Gomega) {
		g.Expect(s.collector.Spans(trace.IDOf(other.UID).String())).NotTo(gomega.BeEmpty())
	})
	check.Equal(t, 9, len(s.collector.Spans(id)), "what has ended long ago is not exported again")
}
