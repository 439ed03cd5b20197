// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// A job that is placed at once and completes costs the hub 1 create (Dispatch), 1 Dispatch status and 1 to 3 TrainJob
// status, and the worker 1 create and 1 delete. It costs no read on the hub or a worker, and no new watch. No two of the
// jobs are alike, so that nothing which the manager knows of one job saves a request for another: of each the worker may
// be asked once what its pods become. Users who poll the pods of the jobs through the gateway change nothing of that.
func TestWriteBudget(t *testing.T) {
	if clusters.OnKind() {
		t.Skip("it counts requests in audit logs, which clusters of kind lack")
	}
	const jobs, batch, watched = 20, 5, 10
	// Finished copies are deleted at once, so that their deletion is counted.
	apply(t, &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "budget"}, Spec: v1alpha1.DispatchPolicySpec{
		Retention: &metav1.Duration{Duration: 0},
	}})
	names := []string{small, large}
	for i, other := range []string{large, small} {
		y.Cordon(t, other, true)
		afterStart(t, names[i])
		y.Cordon(t, other, false)
	}
	var began [2]int64
	for i, name := range names {
		_, began[i] = requests(t, y.Yard.Workers[name], hubUser, 0)
	}
	_, hubBegan := requests(t, y.Yard.Hub, managerUser, 0)
	hubBefore := counter(t, y.Yard.Hub)
	workersBefore := []map[string]int{counter(t, y.Yard.Workers[small]), counter(t, y.Yard.Workers[large])}

	long := 0 // Jobs that lived so long, on a slow machine, that their Dispatch may have said Starting, and Running.
	var polls func() int
	for first := 0; first < jobs; first += batch {
		if first == watched {
			noCopies(t)
			polls = pollPods(t, "ann", "bob")
		}
		var submitted []*trainer.TrainJob
		for i := first; i < first+batch; i++ {
			submitted = append(submitted, unlikeOthers(i))
		}
		long += complete(t, submitted...)
	}
	noCopies(t)
	if n := polls(); n < jobs-watched {
		t.Errorf("users have seen pods %d times while %d jobs ran: the budget says nothing of the gateway", n, jobs-watched)
	}

	hubAfter := counter(t, y.Yard.Hub)
	hubCount := func(what string) int { return hubAfter[what] - hubBefore[what] }
	workerCount := func(what string) (sum int) {
		for i, name := range names {
			sum += counter(t, y.Yard.Workers[name])[what] - workersBefore[i][what]
		}
		return sum
	}
	for _, budget := range []struct {
		where    string
		what     string
		got      int
		min, max int
	}{
		{"hub", "create Dispatch", hubCount("POST dispatches/"), jobs, jobs},
		{"hub", "write Dispatch", hubCount("PATCH dispatches/") + hubCount("PUT dispatches/"), 0, 0},
		{"hub", "write Dispatch status", hubCount("PATCH dispatches/status") + hubCount("PUT dispatches/status"), jobs, jobs + 2*long},
		{"hub", "write TrainJob", hubCount("PATCH trainjobs/") + hubCount("PUT trainjobs/"), 0, 0},
		{"hub", "write TrainJob status", hubCount("PATCH trainjobs/status") + hubCount("PUT trainjobs/status"), jobs, 3 * jobs},
		{"hub", "create Event", hubCount("POST events/"), 0, jobs}, // They come when they come.
		{"workers", "create TrainJob", workerCount("POST trainjobs/"), jobs, jobs},
		{"workers", "ask about pods", workerCount("dry run of POST trainjobs/"), 0, jobs},
		{"workers", "delete TrainJob", workerCount("DELETE trainjobs/"), jobs, jobs},
		{"workers", "create Namespace", workerCount("POST namespaces/"), 0, 0},
		{"workers", "write runtime", workerCount("POST clustertrainingruntimes/") + workerCount("PATCH clustertrainingruntimes/") +
			workerCount("PUT clustertrainingruntimes/"), 0, 0},
		{"workers", "compare a runtime", workerCount("dry run of PATCH clustertrainingruntimes/") +
			workerCount("dry run of PATCH trainingruntimes/"), 0, 0},
	} {
		t.Logf("%-7s  %-21s  %3d for %d jobs", budget.where, budget.what, budget.got, jobs)
		if budget.got < budget.min || budget.got > budget.max {
			t.Errorf("%s: %s: %d for %d jobs, want %d to %d", budget.where, budget.what, budget.got, jobs, budget.min, budget.max)
		}
	}

	for i, name := range names {
		expectNoReads(t, y.Yard.Workers[name].Name, func() (reads []string) {
			events, _ := requests(t, y.Yard.Workers[name], hubUser, began[i])
			for _, event := range events {
				// The health probe, which does not depend on jobs.
				if event.ObjectRef.Resource == "namespaces" && event.ObjectRef.Name == metav1.NamespaceSystem {
					continue
				}
				if event.UserAgent == gatewayAgent { // Users ask, and not jobs.
					continue
				}
				if event.Verb == "get" || event.Verb == "list" {
					reads = append(reads, describe(event))
				}
			}
			return reads
		})
	}
	expectNoReads(t, "hub", func() (reads []string) {
		events, _ := requests(t, y.Yard.Hub, managerUser, hubBegan)
		watches := map[string]int{}
		for _, event := range events {
			again := false
			if event.Verb == "watch" {
				watches[event.ObjectRef.Resource]++
				again = watches[event.ObjectRef.Resource] > 2 // A watch may end because of its age.
			}
			if again || (event.Verb == "get" || event.Verb == "list") && event.ObjectRef.Resource != "leases" {
				reads = append(reads, describe(event))
			}
		}
		return reads
	})
}

// noCopies waits until the workers have none of the copies, and no pods of them, which the gateway could look at.
func noCopies(t *testing.T) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		for _, name := range []string{small, large} {
			var copies trainer.TrainJobList
			g.Expect(y.Workers[name].List(t.Context(), &copies, client.MatchingLabels{"e2e": "budget"})).To(gomega.Succeed())
			g.Expect(copies.Items).To(gomega.BeEmpty())
			var pods corev1.PodList
			g.Expect(y.Workers[name].List(t.Context(), &pods, client.InNamespace(metav1.NamespaceDefault))).To(gomega.Succeed())
			for _, pod := range pods.Items {
				g.Expect(pod.Name).NotTo(gomega.HavePrefix("budget-"))
			}
		}
	})
}

// pollPods lets users list the pods of all jobs through the gateway, until polls is called, which returns how many lists
// had pods.
func pollPods(t *testing.T, names ...string) (polls func() int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	var seen atomic.Int32
	for _, name := range names {
		user, err := y.NewUser(t.Context(), metav1.NamespaceDefault, name, "view")
		check.Must(t, err)
		config, err := clientcmd.BuildConfigFromFlags("", user.Kubeconfig)
		check.Must(t, err)
		gateway, err := client.New(config, client.Options{})
		check.Must(t, err)
		users.Go(func() {
			for ctx.Err() == nil {
				var pods corev1.PodList
				err := gateway.List(ctx, &pods, client.InNamespace(metav1.NamespaceDefault))
				if err != nil && ctx.Err() == nil {
					t.Errorf("%s lists pods through the gateway: %v", name, err)
					return
				}
				if len(pods.Items) > 0 {
					seen.Add(1)
				}
				time.Sleep(pollEvery)
			}
		})
	}
	return func() int {
		stop()
		users.Wait()
		return int(seen.Load())
	}
}

// pollEvery is how often a user of TestWriteBudget looks.
const pollEvery = 200 * time.Millisecond

// unlikeOthers returns job i of the test. Its image, its environment and its arguments are its own.
func unlikeOthers(i int) *trainer.TrainJob {
	job := yard.Job{Name: fmt.Sprintf("budget-%d", i), GPUs: 1, RunFor: "1s"}.TrainJob()
	job.Spec.Trainer.Image = ptr.To(fmt.Sprintf("registry.example.com/llm:v%d", i))
	job.Spec.Trainer.Env = []corev1.EnvVar{{Name: "SEED", Value: strconv.Itoa(i)}}
	job.Spec.Trainer.Args = []string{fmt.Sprintf("--learning-rate=%de-5", i+1)}
	return job
}

// afterStart runs jobs on the only worker that takes jobs, until a job costs no read. The first job brings the runtime
// to the worker. For some seconds after the manager has connected to a worker, it doubts its caches and asks.
func afterStart(t *testing.T, worker string) {
	t.Helper()
	runs := 0
	y.Eventually(t, func(g gomega.Gomega) {
		_, from := requests(t, y.Yard.Hub, managerUser, 0)
		name := fmt.Sprintf("after-start-%s-%d", worker, runs)
		runs++
		complete(t, yard.Job{Name: name, GPUs: 1, RunFor: "1s"}.TrainJob())
		events, _ := requests(t, y.Yard.Hub, managerUser, from)
		for _, event := range events {
			g.Expect(event.Verb == "get" && event.ObjectRef.Name == name).To(gomega.BeFalse(), describe(event))
		}
	})
}

func expectNoReads(t *testing.T, where string, reads func() []string) {
	t.Helper()
	if found := reads(); len(found) > 0 {
		t.Errorf("%s: %d reads on the steady path, want none: %v", where, len(found), found[:min(len(found), 5)])
	}
}

// complete submits jobs, waits until all are Complete and their Dispatches say so, and leaves them on the hub until the
// test ends. It returns how many jobs lived so long that their Dispatch may have said more than their end.
func complete(t *testing.T, jobs ...*trainer.TrainJob) (long int) {
	t.Helper()
	for _, job := range jobs {
		job.Labels = map[string]string{"e2e": "budget"}
		apply(t, job)
	}
	for _, job := range jobs {
		done := ends(t, job, trainer.TrainJobComplete)
		y.Eventually(t, func(g gomega.Gomega) {
			g.Expect(y.DispatchOf(g, job).Status.Phase).To(gomega.Equal(v1alpha1.PhaseFinished))
		})
		// Not until its end on the worker: on a busy machine the hub hears of the end seconds later.
		if time.Since(done.CreationTimestamp.Time) >= runningAfter {
			long++
		}
	}
	return long
}

// runningAfter is one second less than the age at which a Dispatch says Running, for clocks that are not read at once.
const runningAfter = 9 * time.Second

// apply creates an object on the hub until the test ends.
func apply(t *testing.T, object client.Object) {
	t.Helper()
	check.Must(t, y.Hub.Create(t.Context(), object))
	t.Cleanup(func() { _ = y.Hub.Delete(context.Background(), object) })
}

const (
	managerUser = "system:serviceaccount:trainyard-system:trainyard-manager"
	hubUser     = "system:serviceaccount:trainyard-system:trainyard-hub"
	// gatewayAgent is the user agent of the gateway at workers.
	gatewayAgent = "trainyard-gateway"
)

// requests are the completed requests of a user in the audit log of a cluster, from an offset on, and the offset of its
// end.
func requests(t *testing.T, cluster *clusters.Cluster, user string, from int64) (events []auditv1.Event, end int64) {
	t.Helper()
	file, err := os.Open(cluster.AuditLog())
	check.Must(t, err)
	defer file.Close()
	if _, err := file.Seek(from, 0); err != nil {
		t.Fatal(err)
	}
	end = from
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil { // The end, perhaps in the middle of a line.
			return events, end
		}
		end += int64(len(line))
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("read audit log: %v", err)
		}
		if event.Stage == auditv1.StageResponseComplete && event.User.Username == user && event.ObjectRef != nil {
			events = append(events, event)
		}
	}
}

// describe is a request in short.
func describe(event auditv1.Event) string {
	ref := event.ObjectRef
	return fmt.Sprintf("%s %s/%s %s/%s", event.Verb, ref.Resource, ref.Subresource, ref.Namespace, ref.Name)
}

// counter reads apiserver_request_total of a cluster, by "VERB resource/subresource", of requests that succeeded.
func counter(t *testing.T, cluster *clusters.Cluster) map[string]int {
	t.Helper()
	text, err := cluster.Metrics(t.Context())
	check.Must(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	check.Must(t, err)
	counts := map[string]int{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		label := func(name string) string {
			for _, pair := range metric.GetLabel() {
				if pair.GetName() == name {
					return pair.GetValue()
				}
			}
			return ""
		}
		if strings.HasPrefix(label("code"), "2") {
			what := label("verb") + " " + label("resource") + "/" + label("subresource")
			if label("dry_run") != "" {
				what = "dry run of " + what
			}
			counts[what] += int(value(metric))
		}
	}
	return counts
}

func value(metric *dto.Metric) float64 { return metric.GetCounter().GetValue() }
