// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

func testWorker() *dispatch.Worker {
	return &dispatch.Worker{
		Name: "east", Labels: map[string]string{"region": "eu"}, KubernetesVersion: "v1.36.2",
		Nodes: dispatch.NewNodes([]dispatch.NodeGroup{{
			Free: dispatch.Resources{gpu: 6, "google.com/tpu": 1, "nvidia.com/mig-1g.10gb": 7, "nvidia.com/gpumem": 80000, corev1.ResourceCPU: 1500, corev1.ResourceMemory: 1 << 30}, Count: 2,
		}}),
		Allocatable: dispatch.Resources{
			gpu: 16, "google.com/tpu": 4, "nvidia.com/mig-1g.10gb": 7, "nvidia.com/gpumem": 80000, "example.com/nic": 2, corev1.ResourceCPU: 8000, corev1.ResourceMemory: 4 << 30,
		},
		Price: dispatch.Prices{gpu: 2.5}, Assigned: 3, Queued: 1,
		NodeGroups: []v1alpha1.NodeGroup{{
			Product: "H100", Resource: gpu, Unit: "Device", Nodes: 2, Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
			Free: []v1alpha1.FreeNodes{{GPUs: 8, Nodes: 1}, {GPUs: 4, Nodes: 1}},
		}},
	}
}

func testJob() *dispatch.Job {
	return &dispatch.Job{
		UID: "uid", Name: "llm", Namespace: "research",
		Labels: map[string]string{"team": "vision"}, Annotations: map[string]string{"budget": "10"}, Priority: 7,
		PodSets: []v1alpha1.PodSet{{
			Name: "node", Role: v1alpha1.RoleTrainer, Count: 4, NodeSelector: map[string]string{"gpu": "h100"},
			Requests: corev1.ResourceList{gpu: resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("500m")},
		}},
	}
}

func TestAdmits(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		text   string
		want   bool
		err    string
	}{
		"True":       {reason: "a constant will do", text: "true", want: true},
		"False":      {reason: "a constant will do", text: "false"},
		"Labels":     {reason: "labels of both", text: "worker.labels.region == 'eu' && job.labels['team'] == 'vision'", want: true},
		"Names":      {reason: "reserved words are fields too", text: "worker.name + job.name + job.namespace == 'eastllmresearch'", want: true},
		"Cores":      {reason: "cpu is in cores", text: "worker.free['cpu'] == 3.0 && worker.allocatable['cpu'] > 7", want: true},
		"Bytes":      {reason: "memory is in bytes", text: "worker.free['memory'] >= 2147483648", want: true},
		"Share":      {reason: "a quotient is no integer", text: "worker.freeGPUs / worker.gpus == 0.7", want: true},
		"NoneFree":   {reason: "what the worker has and no node has free is 0", text: "worker.free['example.com/nic'] < 1", want: true},
		"Price":      {reason: "prices are numbers", text: "worker.price['nvidia.com/gpu'] * 8.0 <= double(job.annotations.budget)"},
		"Queue":      {reason: "jobs are counted", text: "worker.assigned == 3 && worker.queued == 1", want: true},
		"Priority":   {reason: "the job's", text: "job.priority > 5", want: true},
		"NodeGroups": {reason: "as in the status", text: "worker.nodeGroups.exists(g, g.product == 'H100' && g.free.exists(f, f.gpus >= 8 && f.nodes > 0))", want: true},
		"GroupSizes": {reason: "as in the status", text: "worker.nodeGroups[0].nodes == 2 && worker.nodeGroups[0].allocatable['cpu'] == 4.0 && worker.nodeGroups[0].resource == 'nvidia.com/gpu' && worker.nodeGroups[0].unit == 'Device'", want: true},
		"PodSets": {
			reason: "the demand", want: true,
			text: "job.podSets.all(p, p.count == 4 && p.requests['cpu'] == 0.5 && p.role == 'trainer' && p.nodeSelector.gpu == 'h100' && p.name == 'node')",
		},
		"Version":  {reason: "Kubernetes' libraries are there", text: "semver(worker.kubernetesVersion, true).isGreaterThan(semver('1.35.0'))", want: true},
		"Quantity": {reason: "Kubernetes' libraries are there", text: "quantity('1Gi').isLessThan(quantity('2Gi'))", want: true},
		"Optional": {reason: "a way to ask for what may not be there", text: "worker.labels[?'zone'].orValue('none') == 'none'", want: true},
		"Has":      {reason: "another way", text: "!has(worker.labels.zone) && !('zone' in worker.labels)", want: true},
		"NoKey":    {reason: "what is not known is not admitted, and says why", text: "worker.labels.zone != 'a'", err: "no such key: zone"},
		"Division": {reason: "an error is an answer", text: "1 / (worker.assigned - 3) == 1", err: "division by zero"},
		"Cost": {
			reason: "an expression that takes too long is stopped",
			text:   "['a','b','c','d','e','f','g','h','i','j'].all(a, ['a','b','c','d','e','f','g','h','i','j'].all(b, ['a','b','c','d','e','f','g','h','i','j'].all(c, ['a','b','c','d','e','f','g','h','i','j'].all(d, a+b+c+d != ''))))",
			err:    "it takes more than 10000 steps, which is the limit of an expression",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Compile(test.text)
			check.Must(t, err)
			got, err := e.For(testJob())(testWorker())
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v, %v; want %v, %q: %s", test.text, got, err, test.want, test.err, test.reason)
			}
		})
	}
}

func TestCompileFaults(t *testing.T) {
	const sees = "; an expression sees worker.{allocatable, assigned, free, freeGPUs, gpus, kubernetesVersion, labels, name, nodeGroups, price, queued} " +
		"and job.{annotations, labels, name, namespace, podSets, priority}"
	for name, test := range map[string]struct {
		reason string
		text   string
		want   string
	}{
		"Empty":    {reason: "nothing is no expression", text: " ", want: "line 1, column 2: Syntax error: mismatched input '<EOF>'"},
		"Syntax":   {reason: "lines are counted", text: "true &&\n  (worker.gpus > ", want: "line 2, column 18: Syntax error"},
		"Field":    {reason: "what there is instead is said", text: "worker.memory > 1", want: "line 1, column 7: undefined field 'memory'" + sees},
		"Variable": {reason: "what there is instead is said", text: "object.name == 'a'", want: "line 1, column 1: undeclared reference to 'object' (in container '')" + sees},
		"Several": {
			reason: "all faults at once", text: "worker.a == 1 &&\njob.b == 2",
			want: "line 1, column 7: undefined field 'a'; line 2, column 4: undefined field 'b'" + sees,
		},
		"Overload": {reason: "types are checked", text: "worker.free['cpu'] - 8 > 1", want: "line 1, column 20: found no matching overload for '_-_' applied to '(double, int)'"},
		"NotBool":  {reason: "the answer is yes or no", text: "worker.gpus", want: "line 1, column 1: it is of type double, and has to be a bool"},
		"Dyn":      {reason: "the answer is known to be yes or no", text: "dyn(true)", want: "line 1, column 1: it is of type dyn, and has to be a bool"},
		"Regex":    {reason: "constants are checked", text: "worker.name.matches('(')", want: "line 1, column 21: invalid matches argument"},
		"Clock":    {reason: "the same question has the same answer", text: "now() > timestamp('2026-01-01T00:00:00Z')", want: "undeclared reference to 'now'"},
		"Authz":    {reason: "there is no API server to ask", text: "authorizer.group('').resource('pods').check('get').allowed()", want: "undeclared reference to 'authorizer'"},
		"Long":     {reason: "size is limited outside the API server too", text: strings.Repeat("true || ", 600) + "true", want: "expression code point size exceeds limit"},
		"Deep":     {reason: "depth is limited", text: strings.Repeat("(", 1000) + "true" + strings.Repeat(")", 1000), want: "recursion"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Compile(test.text); err == nil || !strings.HasPrefix(err.Error(), test.want) && !strings.Contains(err.Error(), test.want) {
				t.Errorf("Compile() = %v, want %q: %s", err, test.want, test.reason)
			} else if strings.Contains(err.Error(), "\n") {
				t.Errorf("Compile() = %q, want one line", err)
			}
		})
	}
}

// TestKey: a decision may be cached for all jobs with the same key.
func TestKey(t *testing.T) {
	changes := map[string]func(*dispatch.Job){
		"name": func(j *dispatch.Job) { j.Name = "other" }, "namespace": func(j *dispatch.Job) { j.Namespace = "other" },
		"labels": func(j *dispatch.Job) { j.Labels = nil }, "annotations": func(j *dispatch.Job) { j.Annotations = nil },
		"priority": func(j *dispatch.Job) { j.Priority = 0 },
		"podSets":  func(j *dispatch.Job) { j.PodSets[0].Count++ },
		"uid":      func(j *dispatch.Job) { j.UID = "other" },
	}
	for name, test := range map[string]struct {
		reason string
		text   string
		want   []string // Changes that give another key.
	}{
		"None":   {reason: "the job makes no difference", text: "worker.gpus > 8"},
		"Some":   {reason: "what is read does, also in macros", text: "has(job.labels.team) && [1].all(i, job.podSets[0].count > i)", want: []string{"labels", "podSets"}},
		"Simple": {reason: "what is read does", text: "job.name == 'a' || job.priority > 3", want: []string{"name", "priority"}},
		"All": {
			reason: "who takes the job as a whole may read everything", text: "[job].exists(j, j.namespace == 'research')",
			want: []string{"annotations", "labels", "name", "namespace", "podSets", "priority"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Compile(test.text)
			check.Must(t, err)
			want := map[string]bool{}
			for _, change := range test.want {
				want[change] = true
			}
			got := map[string]bool{}
			for name, change := range changes {
				job := testJob()
				change(job)
				if e.Key(job) != e.Key(testJob()) {
					got[name] = true
				}
			}
			check.Diff(t, want, got, fmt.Sprintf("changes that make another key: %s", test.reason))
		})
	}
}

// TestConcurrentUse: decisions in several goroutines use one expression.
func TestConcurrentUse(t *testing.T) {
	e, err := Compile("job.name == 'llm' && worker.nodeGroups.all(g, g.nodes == 2)")
	check.Must(t, err)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 200 {
				if admitted, err := e.For(testJob())(testWorker()); !admitted || err != nil {
					t.Errorf("%v, %v, want true", admitted, err)
					return
				}
			}
		})
	}
	wait.Wait()
}

// FuzzCompile looks for expressions that crash, or whose answer depends on a field that Key says they do not read.
func FuzzCompile(f *testing.F) {
	for _, text := range []string{
		"true", "worker.free['nvidia.com/gpu'] >= 8", "job.podSets.exists(p, p.count > 1 && p.requests['cpu'] / 2.0 < worker.free['cpu'])",
		"worker.labels[?'zone'].orValue('') == job.labels.team", "semver('1.2.3') == semver(worker.kubernetesVersion, true)",
		"[worker, worker].size() == 2", "job == job", "worker.nodeGroups.map(g, g.product).join(',').matches('^H')", "{1: 2}[job.priority] == 2",
		"worker.name.format(['a'])", "sets.contains(['a'], [job.name])", "1 << 63", "((((((", "'\\u0000'", "job.podSets[9223372036854775807].count == 1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Compile(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "line ") {
				t.Errorf("%q: %v, want one line that says where", text, err)
			}
			return
		}
		first, firstErr := e.For(testJob())(testWorker())
		again, againErr := e.For(testJob())(testWorker())
		if first != again || (firstErr == nil) != (againErr == nil) {
			t.Errorf("%q: %v, %v and then %v, %v", text, first, firstErr, again, againErr)
		}
		if first && firstErr != nil {
			t.Errorf("%q: yes, with the error %v", text, firstErr)
		}
		other := testJob()
		other.Name, other.Namespace, other.Priority, other.Labels, other.UID = "x", "y", 1, nil, "z"
		if got, gotErr := e.For(other)(testWorker()); e.Key(other) == e.Key(testJob()) && (got != first || (gotErr == nil) != (firstErr == nil)) {
			t.Errorf("%q: jobs of one key have the answers %v, %v and %v, %v", text, first, firstErr, got, gotErr)
		}
	})
}
