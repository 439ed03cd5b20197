// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/internal/requeue"
)

const (
	// podsHold is for how long an answer about pods holds.
	podsHold = 10 * time.Minute
	// podsRetry is after how long a worker that could not answer is asked again.
	podsRetry = time.Minute
	// podsPatience is for how long a job that has room waits for an answer. It is a little longer than a worker is
	// asked (mirror.AskLimit).
	podsPatience = 2500 * time.Millisecond
	// mostAsked is how many of the workers on which no node takes a waiting job are asked what its pods become there.
	mostAsked = 4
	// mostKinds is of how many kinds of pods answers are kept. A worker chooses how long its answers are.
	mostKinds = 2000
)

// notAsked is what the explanation adds where only an assumption keeps a job off a worker.
const notAsked = "; assumed: the worker has not said what its admission makes of the pods"

// podsKind names pods of which admission makes the same: of one namespace, and alike in all that it usually looks at.
type podsKind struct{ namespace, digest string }

// podsKindOf returns the kind of a job's pods. It depends on the runtime, on what the policy says about copies, and on the
// spec. It leaves out what jobs of one kind differ in: arguments, environment, sources of data, how many pods there are, and
// when runtimePatches were written.
func podsKindOf(object *unstructured.Unstructured, job *queue.Job) podsKind {
	var rules v1alpha1.DispatchPolicySpec
	if policy, _, err := dispatch.SelectPolicy(job.Policies, job.Job); err == nil && policy != nil {
		rules = rulesAtWorker(policy.Spec)
	}
	spec := without(trainjobs.Spec(object), "suspend", "managedBy")
	if trainer, is := spec["trainer"].(map[string]any); is {
		spec["trainer"] = without(trainer, "args", "command", "env", "numNodes")
	}
	if initializer, is := spec["initializer"].(map[string]any); is {
		initializer = maps.Clone(initializer)
		for name, of := range initializer {
			if fields, is := of.(map[string]any); is {
				initializer[name] = without(fields, "env", "storageUri")
			}
		}
		spec["initializer"] = initializer
	}
	if patches, is := spec["runtimePatches"].([]any); is {
		patches = slices.Clone(patches)
		for i, patch := range patches {
			if fields, is := patch.(map[string]any); is {
				patches[i] = without(fields, "time")
			}
		}
		spec["runtimePatches"] = patches
	}
	return podsKind{namespace: job.Namespace, digest: digest(job.Counted.Runtime, rules, spec)}
}

// without returns a copy of an object without some fields.
func without(object map[string]any, fields ...string) map[string]any {
	object = maps.Clone(object)
	for _, field := range fields {
		delete(object, field)
	}
	return object
}

// podAnswers are what workers have said that their admission makes of pods. They are lost with the process. Then the
// workers are asked again.
type podAnswers struct {
	clock clock.PassiveClock
	// wake makes the Reconciler look at jobs.
	wake func(jobs ...types.NamespacedName)

	mu sync.Mutex
	// known are the answers and open questions, under mu.
	known map[podsKind]map[v1alpha1.ClusterName]*podAnswer
	swept time.Time
}

func newPodAnswers(clock clock.PassiveClock) *podAnswers {
	return &podAnswers{clock: clock, known: map[podsKind]map[v1alpha1.ClusterName]*podAnswer{}}
}

// podAnswer is a question to a worker, and its answer.
type podAnswer struct {
	// worker is askedOn the worker that was asked.
	worker   string
	asked    time.Time
	answered bool
	answer   trainjobs.Admission
	// waiting are the jobs to wake when there is an answer.
	waiting sets.Set[types.NamespacedName]
}

// isOpen: the answer may still come.
func (a *podAnswer) isOpen(now time.Time) bool { return !a.answered && now.Sub(a.asked) < podsPatience }

// isAnswer: the worker has said something about the pods, or refuses them.
func (a *podAnswer) isAnswer() bool {
	says := func(pod trainjobs.AdmittedPod) bool { return pod.Spec != nil }
	return a.answer.Refused != "" || slices.ContainsFunc(a.answer.Pods, says)
}

// expires is when the worker has to be asked again.
func (a *podAnswer) expires() time.Time {
	if a.isAnswer() {
		return a.asked.Add(podsHold)
	}
	return a.asked.Add(podsRetry)
}

// askedOn sums up everything of a worker on which it depends what it says about the pods of a job.
func askedOn(job *queue.Job, worker *v1alpha1.WorkerCluster) string {
	if own := job.Own.On(v1alpha1.ClusterName(worker.Name)); own != nil {
		return digestOf(worker) + own.Digest
	}
	return digestOf(worker)
}

// at returns what is known of a job's kind of pods on a worker, nil if the worker has to be asked. The caller holds mu.
func (a *podAnswers) at(kind podsKind, job *queue.Job, worker *v1alpha1.WorkerCluster) *podAnswer {
	known := a.known[kind][v1alpha1.ClusterName(worker.Name)]
	if known == nil || !a.clock.Now().Before(known.expires()) || known.worker != askedOn(job, worker) {
		return nil
	}
	return known
}

// mayAnswer says whether a worker has somebody who can say what becomes of pods.
func mayAnswer(worker *v1alpha1.WorkerCluster) bool {
	return meta.IsStatusConditionTrue(worker.Status.Conditions, v1alpha1.WorkerClusterAgentReady)
}

// fill adds to a job what workers have said about its pods: the demand where admission changes it, and the workers that
// refuse it. It returns how long it is until the first of these workers may be asked again, zero if there is none.
func (a *podAnswers) fill(job *queue.Job, kind podsKind, workers []v1alpha1.WorkerCluster) (expire time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range workers {
		name, known := v1alpha1.ClusterName(workers[i].Name), a.at(kind, job, &workers[i])
		if known == nil || !known.answered {
			continue
		}
		if refused := known.answer.Refused; refused != "" {
			expire = requeue.Sooner(expire, known.expires().Sub(a.clock.Now()))
			if why, is := job.Excluded[name]; !is || why.Domain != (v1alpha1.Domain{}) {
				job.Exclude(name, dispatch.Exclusion{Reason: string(v1alpha1.OutcomeRejected), Message: dispatch.Cut(refused)})
			}
		} else if podSets, changed := demand.Admitted(job.AssumedOn(name), known.answer.Pods); changed {
			job.Admit(name, podSets)
		}
	}
	return expire
}

// kindOf returns the kind of a job's pods, and whether any worker was asked about it. Without questions, which only workers
// with an agent get, it costs nothing.
func (a *podAnswers) kindOf(object *unstructured.Unstructured, job *queue.Job) (kind podsKind, asked bool) {
	a.mu.Lock()
	nothing := len(a.known) == 0
	a.mu.Unlock()
	if nothing {
		return kind, false
	}
	kind = podsKindOf(object, job)
	a.mu.Lock()
	defer a.mu.Unlock()
	return kind, len(a.known[kind]) > 0
}

// confirm says whether a job may be placed as it was decided. If not, the caller asks the worker if ask is true, and the
// job is looked at again after due, or at once if due is zero: the worker has said something else than was counted.
func (a *podAnswers) confirm(kind podsKind, job *queue.Job, worker *v1alpha1.WorkerCluster) (ok, ask bool, due time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, now := a.at(kind, job, worker), a.clock.Now()
	switch {
	case known == nil:
		a.begin(kind, worker, job)
		return false, true, podsPatience
	case known.isOpen(now):
		known.waiting.Insert(job.Key())
		return false, false, known.asked.Add(podsPatience).Sub(now)
	case known.answer.Refused != "":
		return false, false, 0
	}
	name := v1alpha1.ClusterName(worker.Name)
	podSets, _ := demand.Admitted(job.AssumedOn(name), known.answer.Pods)
	return equality.Semantic.DeepEqual(podSets, job.PodSetsOn(name)), false, 0
}

// begin notes that a worker is asked. The caller holds mu.
func (a *podAnswers) begin(kind podsKind, worker *v1alpha1.WorkerCluster, job *queue.Job) {
	now := a.clock.Now()
	if now.Sub(a.swept) > podsHold {
		a.swept = now
		for kind, workers := range a.known {
			maps.DeleteFunc(workers, func(_ v1alpha1.ClusterName, known *podAnswer) bool { return now.Sub(known.asked) > podsHold })
			if len(workers) == 0 {
				delete(a.known, kind)
			}
		}
	}
	for other := range a.known {
		if len(a.known) < mostKinds {
			break
		}
		delete(a.known, other) // Its workers are asked again, and its jobs are looked at again when their patience ends.
	}
	if a.known[kind] == nil {
		a.known[kind] = map[v1alpha1.ClusterName]*podAnswer{}
	}
	a.known[kind][v1alpha1.ClusterName(worker.Name)] = &podAnswer{
		worker: askedOn(job, worker), asked: now, waiting: sets.New(job.Key()),
	}
}

// forgetRefusals has the workers asked again that refuse a kind of pods, unless they were asked in the last retryInterval:
// many jobs have one kind.
func (a *podAnswers) forgetRefusals(kind podsKind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.known[kind], func(_ v1alpha1.ClusterName, known *podAnswer) bool {
		return known.answer.Refused != "" && a.clock.Since(known.asked) >= retryInterval
	})
}

// heard notes an answer, and wakes the jobs that wait for it. A later one does not count.
func (a *podAnswers) heard(kind podsKind, job *queue.Job, worker *v1alpha1.WorkerCluster, answer trainjobs.Admission) {
	a.mu.Lock()
	known := a.at(kind, job, worker)
	if known == nil || known.answered {
		a.mu.Unlock()
		return
	}
	known.answered, known.answer = true, answer
	waiting := known.waiting.UnsortedList()
	known.waiting = nil
	a.mu.Unlock()
	a.wake(waiting...)
}

// askable returns the workers to ask about a job that waits: those on which no node takes its pods as they are assumed
// to be, at most mostAsked. unasked are all such workers that have not answered, and again is when the first of those
// that could not answer is asked again, zero if there is none.
func (a *podAnswers) askable(
	kind podsKind, job *queue.Job, explanation []v1alpha1.ClusterExplanation, workers []v1alpha1.WorkerCluster,
) (ask []*v1alpha1.WorkerCluster, unasked sets.Set[v1alpha1.ClusterName], again time.Duration) {
	unasked = sets.Set[v1alpha1.ClusterName]{}
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := 0
	for i := range explanation {
		line := &explanation[i]
		at := slices.IndexFunc(workers, func(w v1alpha1.WorkerCluster) bool { return w.Name == string(line.Cluster) })
		if line.Reason != v1alpha1.ReasonNoMatchingNode || at < 0 {
			continue
		}
		worker := &workers[at]
		known := a.at(kind, job, worker)
		if known != nil {
			asked++
			if known.isOpen(a.clock.Now()) {
				known.waiting.Insert(job.Key())
			}
			if !known.isAnswer() {
				again = requeue.Sooner(again, known.expires().Sub(a.clock.Now()))
			}
		}
		if known == nil || !known.isAnswer() {
			unasked.Insert(line.Cluster)
		}
		if known == nil && mayAnswer(worker) {
			ask = append(ask, worker)
		}
	}
	ask = ask[:min(len(ask), max(0, mostAsked-asked))]
	for _, worker := range ask {
		a.begin(kind, worker, job)
		again = requeue.Sooner(again, podsRetry)
	}
	return ask, unasked, again
}
