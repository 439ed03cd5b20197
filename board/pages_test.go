// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/board"
	"github.com/trainyard/trainyard/test/check"
)

func TestFleet(t *testing.T) {
	w := newWorld(t)
	check.Diff(t, []string(nil), w.page(t, "/api/fleet").names(), "workers before there are any")
	drained := workerCluster("west", metav1.ConditionTrue)
	drained.Spec.Drain = true
	w.put(t, workerCluster("north", metav1.ConditionFalse), drained, workerCluster("east", metav1.ConditionTrue))
	p := w.page(t, "/api/fleet")
	check.Diff(t, []string{"east", "north", "west"}, p.names(), "workers, by name")
	var said []string
	for _, item := range p.Items {
		said = append(said, item["title"].(string)+" "+item["tone"].(string))
	}
	check.Diff(t, []string{"Ready good", "Unreachable bad", "Draining quiet"}, said, "states")
	check.Diff(t, map[string]any{"workers": 3.0, "ready": 1.0, "jobs": 0.0, "free": 0.0, "total": 0.0, "nodes": 0.0}, p.Head, "head")
}

func TestJobs(t *testing.T) {
	w := newWorld(t)
	w.job(t, "team", "old", 0, "east")
	w.job(t, "team", "new", time.Hour, "")
	w.job(t, "other", "between", time.Minute, "west")
	unplaced, _ := newJob("team", "hub-eval", time.Second, "")
	w.put(t, unplaced)
	for path, want := range map[string][]string{
		"/api/jobs":                             {"team/new", "other/between", "team/hub-eval", "team/old"},
		"/api/jobs?namespace=team":              {"team/new", "team/hub-eval", "team/old"},
		"/api/jobs?worker=west":                 {"other/between"},
		"/api/jobs?state=Waiting":               {"team/new"},
		"/api/jobs?text=EVAL":                   {"team/hub-eval"},
		"/api/jobs?namespace=none":              nil,
		"/api/jobs?rows=2":                      {"team/new", "other/between"},
		"/api/jobs?namespace=team&name=old":     {"team/old"},
		"/api/jobs?namespace=team&state=Failed": nil,
	} {
		check.Diff(t, want, w.page(t, path).names(), path)
	}
	p := w.page(t, "/api/jobs?rows=2")
	check.Diff(t, map[string]any{
		"counts": map[string]any{"Waiting": 1.0, "Running": 2.0, "Unmanaged": 1.0}, "total": 4.0, "matching": 2.0, "more": true, "namespaces": []any{"other", "team"},
	}, p.Head, "head")
	check.Equal(t, "NoFit", p.Items[0]["why"], "why the new job waits")
	job, d := newJob("team", "new", time.Hour, "")
	w.remove(t, d)
	w.remove(t, job)
	check.Diff(t, []string{"team/hub-eval", "team/old"}, w.page(t, "/api/jobs?namespace=team").names(), "jobs after one was deleted")
	for _, rows := range []string{"0", "x", "1001"} {
		code, _ := w.get(t, "/api/jobs?rows="+rows)
		check.Equal(t, http.StatusBadRequest, code, "code for %s rows", rows)
	}
}

func TestQueue(t *testing.T) {
	w := newWorld(t)
	w.job(t, "team", "second", time.Minute, "")
	w.job(t, "other", "first", 0, "")
	w.job(t, "team", "runs", 0, "east")
	p := w.page(t, "/api/queue")
	check.Diff(t, []string{"other/first", "team/second"}, p.names(), "order")
	check.Equal(t, any(2.0), p.Items[1]["position"], "position")
	workers, err := json.Marshal(p.Items[0]["workers"])
	check.Must(t, err)
	check.Equal(t, `[{"message":"lacks 8 nvidia.com/gpu","result":"NoFit","worker":"east"}]`, string(workers), "why not")
	p = w.page(t, "/api/queue?namespace=team")
	check.Diff(t, []string{"team/second"}, p.names(), "jobs of the namespace")
	check.Equal(t, any(2.0), p.Items[0]["position"], "position among those of all namespaces")
}

// TestNamespacedCaller: who may see one namespace gets that, the words for what is lacking, and nothing of others.
func TestNamespacedCaller(t *testing.T) {
	w := newWorld(t)
	w.job(t, "secret", "theirs", 0, "")
	w.job(t, "team", "mine", time.Minute, "")
	w.put(t, workerCluster("east", metav1.ConditionTrue))
	w.page(t, "/api/queue?namespace=team") // Somebody who may see all asks for the same page first.
	w.caller.set("dispatches team", "trainjobs team")
	for path, want := range map[string]string{
		"/api/fleet": "workerclusters.trainyard.dev: list, watch", "/api/jobs": "dispatches.trainyard.dev: list, watch",
		"/api/queue": "trainjobs.trainer.kubeflow.org: list, watch", "/api/jobs?namespace=secret": "dispatches.trainyard.dev in namespace secret: list, watch",
		"/api/stream/fleet": "workerclusters.trainyard.dev: list, watch", "/api/stream/jobs": "trainjobs.trainer.kubeflow.org: list, watch",
	} {
		code, body := w.get(t, path)
		if code != http.StatusForbidden || !strings.Contains(body, want) || !strings.Contains(body, "todo") || strings.Contains(body, "theirs") {
			t.Errorf("%s: %d %s, want 403 with %q", path, code, body, want)
		}
	}
	check.Diff(t, []string{"team/mine"}, w.page(t, "/api/jobs?namespace=team").names(), "own jobs")
	p := w.page(t, "/api/queue?namespace=team")
	check.Diff(t, []string{"team/mine"}, p.names(), "own waiting jobs")
	check.Equal(t, nil, p.Items[0]["position"], "position, which counts the jobs of others")
	_, body := w.get(t, "/api/me")
	check.Equal(t, `{"namespace":"team","all":false,"workers":false,"fixed":false}`, strings.TrimSpace(body), "me")
	if p := w.page(t, "/api/jobs?namespace=team"); p.Head["namespaces"] != nil {
		t.Errorf("the namespaces of others are told: %v", p.Head)
	}
}

// TestUnwatched: a process that watches one namespace shows no other as empty.
func TestUnwatched(t *testing.T) {
	w := newWorld(t, func(o *board.Options) { o.Watched = board.Watched{Jobs: true, Namespace: "team"} })
	w.job(t, "team", "mine", 0, "")
	check.Diff(t, []string{"team/mine"}, w.page(t, "/api/jobs?namespace=team").names(), "own jobs")
	for _, path := range []string{"/api/jobs", "/api/jobs?namespace=other", "/api/queue", "/api/fleet"} {
		if code, body := w.get(t, path); code != http.StatusForbidden || !strings.Contains(body, "kubectl trainyard board") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// TestStream: what is open changes, with what has changed only.
func TestStream(t *testing.T) {
	w := newWorld(t)
	w.put(t, workerCluster("east", metav1.ConditionTrue), workerCluster("west", metav1.ConditionTrue))
	s := w.stream(t, "/api/stream/fleet")
	p := s.page(t)
	check.Equal(t, true, p.Whole, "the first page is whole")
	check.Diff(t, []string{"east", "west"}, p.names(), "workers")
	next := func() page {
		t.Helper()
		stop := w.run(t)
		defer stop()
		return s.page(t)
	}
	w.put(t, workerCluster("west", metav1.ConditionFalse))
	p = next()
	check.Diff(t, page{Head: p.Head, Items: p.Items}, p, "an update has neither order nor all items")
	check.Diff(t, []string{"west"}, p.names(), "changed workers")
	check.Equal(t, "Unreachable", p.Items[0]["title"], "state")
	w.put(t, workerCluster("north", metav1.ConditionTrue))
	p = next()
	check.Diff(t, []string{"north"}, p.names(), "changed workers")
	check.Diff(t, []string{"east", "north", "west"}, p.Order, "order")
	w.remove(t, workerCluster("east", metav1.ConditionTrue))
	check.Diff(t, []string{"north", "west"}, next().Order, "order after one has gone")
}

// TestRightsAreAskedAgain: a stream ends soon after its caller has lost the right.
func TestRightsAreAskedAgain(t *testing.T) {
	w := newWorld(t)
	s := w.stream(t, "/api/stream/fleet")
	s.page(t)
	w.caller.set("dispatches team")
	defer w.run(t)()
	name, data := s.next(t)
	for name == "page" || name == "alive" {
		name, data = s.next(t)
	}
	if name != "refused" || !strings.Contains(data, "workerclusters.trainyard.dev") {
		t.Errorf("got %s %s", name, data)
	}
	if _, err := s.lines.ReadByte(); err == nil {
		t.Error("the stream goes on")
	}
}

// run lets the clock go, until the returned function is called.
func (w *world) run(t testing.TB) (stop func()) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				w.clock.Step(100 * time.Millisecond)
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// TestMarkup: words of workers and users are JSON that is no markup, too.
func TestMarkup(t *testing.T) {
	w := newWorld(t)
	const words = `</script><img src=x onerror=alert(1)>`
	evil := workerCluster("east", metav1.ConditionFalse)
	evil.Status.Conditions[0].Message = words
	w.put(t, evil)
	_, d := newJob("team", "job", 0, "")
	d.Status.Explanation = []v1alpha1.ClusterExplanation{{Cluster: "east", Reason: "NoFit", Message: words}}
	w.put(t, d)
	for _, path := range []string{"/api/fleet", "/api/queue"} {
		if _, body := w.get(t, path); strings.ContainsAny(body, "<>") || !strings.Contains(body, "onerror=alert(1)") {
			t.Errorf("%s: %s", path, body)
		}
	}
}

// TestWatchable: a process watches what its user may, and never less than one namespace if that is allowed.
func TestWatchable(t *testing.T) {
	for name, tc := range map[string]struct {
		rights []string
		want   board.Watched
	}{
		"All":         {nil, board.Watched{Workers: true, Jobs: true}},
		"Namespace":   {[]string{"dispatches team", "trainjobs team"}, board.Watched{Jobs: true, Namespace: "team"}},
		"NoTrainJobs": {[]string{"dispatches ", "workerclusters "}, board.Watched{Workers: true}},
		"Other":       {[]string{"dispatches other", "trainjobs other"}, board.Watched{}},
	} {
		c := &caller{}
		if tc.rights != nil {
			c.set(tc.rights...)
		}
		got, err := board.Watchable(t.Context(), c, "team")
		check.Must(t, err)
		check.Diff(t, tc.want, got, name)
	}
}

// TestPastedTexts: what is no TrainJob, or too much, is refused in words, before anything is read.
func TestPastedTexts(t *testing.T) {
	w := newWorld(t)
	w.hub = func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the hub was asked for %s", r.URL) }
	const job = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {generateName: a-}\nspec: {runtimeRef: {name: r}}\n"
	for name, tc := range map[string]struct {
		text, want string
		code       int
	}{
		"Nothing": {"", "the text has no TrainJob", http.StatusUnprocessableEntity},
		"Syntax":  {"a: [", "read the text", http.StatusUnprocessableEntity},
		"Field":   {strings.Replace(job, "runtimeRef", "runtimeReff", 1), `unknown field \"spec.runtimeReff\"`, http.StatusUnprocessableEntity},
		"Policy":  {job + "---\napiVersion: trainyard.dev/v1alpha1\nkind: DispatchPolicy\nmetadata: {name: p}", "kubectl trainyard simulate", http.StatusUnprocessableEntity},
		"Many":    {strings.Repeat(job+"---\n", 21), "at most 20", http.StatusUnprocessableEntity},
		"Long":    {strings.Repeat("#", 256<<10+1), "longer than 256 KiB", http.StatusRequestEntityTooLarge},
		"Markup":  {"apiVersion: <img>\nkind: TrainJob\nmetadata: {name: a}", "the text: TrainJob \\\"a\\\" of \\u003cimg\\u003e is ignored", http.StatusUnprocessableEntity},
	} {
		res, err := http.Post(w.server.URL+"/api/whatif", "application/yaml", strings.NewReader(tc.text))
		check.Must(t, err)
		body, err := io.ReadAll(res.Body)
		check.Must(t, err)
		_ = res.Body.Close()
		if res.StatusCode != tc.code || !strings.Contains(string(body), tc.want) {
			t.Errorf("%s: %d %s, want %d with %q", name, res.StatusCode, body, tc.code, tc.want)
		}
	}
}
