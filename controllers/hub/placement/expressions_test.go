// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/expressions"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/test/check"
)

func expressed(name, text string) v1alpha1.DispatchPolicy {
	policy := v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec.Clusters.Expression = text
	return policy
}

// Each text is compiled once, however many policies have it and however often they are read, and forgotten when none
// has it.
func TestExpressionsAreCompiledOnce(t *testing.T) {
	var c compiled
	policies := []v1alpha1.DispatchPolicy{
		expressed("a", "worker.gpus > 1"), expressed("b", "worker.gpus > 1"), expressed("c", "worker.bad"), expressed("d", ""),
	}
	first := c.of(policies)
	again := c.of(policies)
	if first[0].Expression == nil || first[0].Expression != first[1].Expression || first[0].Expression != again[1].Expression {
		t.Errorf("expressions of the same text are %p, %p and %p, want one", first[0].Expression, first[1].Expression, again[1].Expression)
	}
	if first[2].Fault == nil || first[2].Expression != nil || !errors.Is(again[2].Fault, first[2].Fault) {
		t.Errorf("a bad expression has the faults %v and %v, want one", first[2].Fault, again[2].Fault)
	}
	if first[3].Expression != nil || first[3].Fault != nil || len(c.byText) != 2 {
		t.Errorf("%d texts are kept, want 2, and nothing for a policy without: %+v", len(c.byText), first[3])
	}
	if c.of(policies[2:]); len(c.byText) != 1 {
		t.Errorf("%d texts are kept, want the one that is left", len(c.byText))
	}
}

// Answers are remembered until the worker changes, and count only for jobs that the expression cannot tell apart.
func TestAnswersAreRemembered(t *testing.T) {
	expression, err := expressions.Compile("worker.queued < 2 && job.name != 'b'")
	check.Must(t, err)
	r := &remembering{expression: expression}
	job, other := &dispatch.Job{Name: "a", UID: "1"}, &dispatch.Job{Name: "b", UID: "2"}
	ask := func(job *dispatch.Job, worker dispatch.Worker) bool {
		admitted, err := r.For(job)(&worker)
		check.Must(t, err)
		return admitted
	}
	for i, test := range []struct {
		reason string
		job    *dispatch.Job
		worker dispatch.Worker
		want   bool
	}{
		{"it is asked", job, dispatch.Worker{Name: "w", Revision: 1, Queued: 1}, true},
		{"it is not asked again for the same revision, though the worker is another", job, dispatch.Worker{Name: "w", Revision: 1, Queued: 5}, true},
		{"other workers have answers of their own", job, dispatch.Worker{Name: "v", Revision: 1, Queued: 5}, false},
		{"jobs of another kind have answers of their own", other, dispatch.Worker{Name: "w", Revision: 1, Queued: 1}, false},
		{"a job that cannot be told apart has the same", &dispatch.Job{Name: "a", UID: "3"}, dispatch.Worker{Name: "w", Revision: 1, Queued: 5}, true},
		{"a worker that has changed is asked about again", job, dispatch.Worker{Name: "w", Revision: 2, Queued: 5}, false},
		{"without a revision nothing is remembered", job, dispatch.Worker{Name: "u", Queued: 1}, true},
		{"without a revision nothing is remembered", job, dispatch.Worker{Name: "u", Queued: 5}, false},
	} {
		if got := ask(test.job, test.worker); got != test.want {
			t.Errorf("%d: %v, want %v: %s", i, got, test.want, test.reason)
		}
	}
	for i := range 2 * maxKinds {
		ask(&dispatch.Job{Name: fmt.Sprint(i)}, dispatch.Worker{Name: "w", Revision: 2})
	}
	if len(r.answers) > maxKinds {
		t.Errorf("answers for %d kinds of jobs are kept, want at most %d", len(r.answers), maxKinds)
	}
}

// Jobs wait in one class only if the same decision holds for them.
func TestClassOf(t *testing.T) {
	var c compiled
	policies := c.of([]v1alpha1.DispatchPolicy{expressed("p", "job.labels[?'team'].orValue('') == 'vision'")})
	class := func(job dispatch.Job) string { return classOf(&queue.Job{Job: job, Policies: policies}) }
	base := dispatch.Job{UID: "1", Name: "a", PodSets: []v1alpha1.PodSet{{Name: "node", Count: 2}}, Labels: map[string]string{"team": "vision"}}
	for name, test := range map[string]struct {
		change func(*dispatch.Job)
		same   bool
	}{
		"Name":       {func(j *dispatch.Job) { j.Name, j.UID = "b", "2" }, true},
		"Previous":   {func(j *dispatch.Job) { j.Previous = "east" }, true},
		"Demand":     {func(j *dispatch.Job) { j.PodSets = []v1alpha1.PodSet{{Name: "node", Count: 3}} }, false},
		"Expression": {func(j *dispatch.Job) { j.Labels = nil }, false},
		"Pin":        {func(j *dispatch.Job) { j.Annotations = map[string]string{v1alpha1.AnnotationClusters: "a=b"} }, false},
		"EmptyPin":   {func(j *dispatch.Job) { j.Annotations = map[string]string{v1alpha1.AnnotationClusters: ""} }, false},
		"Annotation": {func(j *dispatch.Job) { j.Annotations = map[string]string{"other": "x"} }, true},
		"Excluded":   {func(j *dispatch.Job) { j.Excluded = map[v1alpha1.ClusterName]dispatch.Exclusion{"east": {}} }, false},
	} {
		job := base
		test.change(&job)
		if got := class(job) == class(base); got != test.same {
			t.Errorf("%s: of the same class: %t, want %t", name, got, test.same)
		}
	}
}

// A job that no policy matches waits, and one where there is no policy does not.
func TestClassWithoutPolicy(t *testing.T) {
	var c compiled
	other := v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	other.Spec.Jobs.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "other"}}
	job := dispatch.Job{UID: "1", Name: "a"}
	if classOf(&queue.Job{Job: job}) == classOf(&queue.Job{Job: job, Policies: c.of([]v1alpha1.DispatchPolicy{other})}) {
		t.Error("both are of one class")
	}
}

// BenchmarkExpression asks about 1,000 workers: all for the first time, or again after one worker has changed.
func BenchmarkExpression(b *testing.B) {
	expression, err := expressions.Compile("worker.free['nvidia.com/gpu'] >= 8 && worker.labels[?'region'].orValue('') == 'eu' && job.namespace != 'test'")
	check.Must(b, err)
	nodes := dispatch.NewNodes([]dispatch.NodeGroup{{Free: dispatch.Resources{gpu: 8, corev1.ResourceCPU: 8000}, Count: 64}})
	workers := make([]dispatch.Worker, 1000)
	for i := range workers {
		workers[i] = dispatch.Worker{
			Name: v1alpha1.ClusterName(fmt.Sprint("worker-", i)), Labels: map[string]string{"region": "eu"}, Revision: uint64(i + 1),
			Nodes: nodes, Allocatable: dispatch.Resources{gpu: 512, corev1.ResourceCPU: 512000},
		}
	}
	for name, changed := range map[string]int{"all new": len(workers), "one changed": 1} {
		b.Run(name, func(b *testing.B) {
			r, revision := &remembering{expression: expression}, uint64(len(workers))
			b.ReportAllocs()
			for b.Loop() {
				for i := range changed {
					revision++
					workers[i].Revision = revision
				}
				ask := r.For(&dispatch.Job{Namespace: "team"})
				for i := range workers {
					if admitted, err := ask(&workers[i]); !admitted || err != nil {
						b.Fatal(admitted, err)
					}
				}
			}
		})
	}
}
