// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// step is one event. The meaning of its numbers depends on what exists at the time, so a test can leave out steps.
type step struct {
	what    string
	a, b, c uint64
}

// kinds has each kind of step as often as it should occur.
var kinds = strings.Fields("arrive arrive arrive arrive arrive arrive arrive arrive arrive end end end leave vanish vanish vanish cordon ready label node worker " +
	"exclude age own policy wait wait pass pass pass pass pass pass")

func newSteps(seed uint64, count int) []step {
	r := rand.New(rand.NewPCG(seed, 0))
	steps := make([]step, count)
	for i := range steps {
		steps[i] = step{kinds[r.IntN(len(kinds))], r.Uint64(), r.Uint64(), r.Uint64()}
	}
	return steps
}

// decider is Queue or its reference.
type decider interface {
	Enter(job queue.Job) bool
	Leave(key types.NamespacedName)
	Pass(now time.Time, fleet queue.Fleet) []queue.Outcome
	HeldFor(worker v1alpha1.ClusterName, job *queue.Job) *queue.Job
}

type world struct {
	*fleet
	decider
	now      time.Time
	most     int // The most workers.
	born     int
	waiting  []queue.Job
	policies []dispatch.Policy
	log      []string
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(t testing.TB, d decider, workers int) *world {
	w := &world{fleet: newFleet(t), decider: d, now: start, most: workers + 1}
	for i := range workers {
		s := w.fleet.add(v1alpha1.ClusterName(fmt.Sprint("worker-", i)), 1+(i+workers/4)%3)
		s.Labels = map[string]string{"region": []string{"eu", "us"}[i%2]}
		s.nodes[0].pool, s.free[0].pool = "b", "b"
	}
	w.policies = newPolicies(0)
	return w
}

// newPolicies returns one policy of each kind, which the label team of a job selects. Versions differ.
func newPolicies(version uint64) []dispatch.Policy {
	policy := func(team string, change func(*v1alpha1.DispatchPolicySpec)) dispatch.Policy {
		p := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: team}}
		p.Spec.Jobs.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
		change(&p.Spec)
		return dispatch.Policy{DispatchPolicy: p}
	}
	after := func(minutes int) *metav1.Duration {
		return &metav1.Duration{Duration: time.Duration(minutes) * time.Minute}
	}
	policies := []dispatch.Policy{
		policy("best", func(s *v1alpha1.DispatchPolicySpec) {
			s.Scoring = []v1alpha1.Score{{Name: v1alpha1.ScoreMostAllocated, Weight: 1}}
		}),
		policy("strict", func(s *v1alpha1.DispatchPolicySpec) {
			s.Queueing = v1alpha1.StrictFIFO
			s.Clusters.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}
		}),
		policy("order", func(s *v1alpha1.DispatchPolicySpec) {
			s.Queueing, s.ReserveAfter = v1alpha1.StrictFIFO, after(20)
		}),
		policy("impatient", func(s *v1alpha1.DispatchPolicySpec) { s.ReserveAfter = after(10) }),
		policy("mighty", func(s *v1alpha1.DispatchPolicySpec) { s.Preemption = v1alpha1.PreemptLowerPriority }),
		policy("picky", func(s *v1alpha1.DispatchPolicySpec) { s.Clusters.Expression = "by hand" }),
		policy("few", func(s *v1alpha1.DispatchPolicySpec) {
			s.Clusters.Expression, s.Queueing, s.ReserveAfter = "by hand", v1alpha1.StrictFIFO, after(30)
		}),
	}
	policies[5].Expression, policies[6].Expression = picky{}, few{}
	switch version % 4 {
	case 1:
		policies[0].Spec.Clusters.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "us"}}
	case 2:
		policies[1].Spec.Queueing = v1alpha1.BestEffortFIFO
	case 3:
		policies[4].Spec.Preemption = v1alpha1.PreemptNever
	}
	return policies
}

// picky is an expression that is true for workers with a few jobs, but not for one without.
type picky struct{}

func (picky) For(*dispatch.Job) func(*dispatch.Worker) (bool, error) {
	return func(w *dispatch.Worker) (bool, error) {
		if w.Assigned == 7 {
			return false, errors.New("nobody likes seven")
		}
		return w.Assigned > 0 && w.Assigned < 5, nil
	}
}

// Reads implements dispatch.Expression.
func (picky) Reads(*dispatch.Worker) string { return "" }

// few is an expression that is true for workers with at most four jobs.
type few struct{}

func (few) For(*dispatch.Job) func(*dispatch.Worker) (bool, error) {
	return func(w *dispatch.Worker) (bool, error) { return w.Assigned < 5, nil }
}

// Reads implements dispatch.Expression.
func (few) Reads(*dispatch.Worker) string { return "" }

var teams = []string{"best", "best", "strict", "order", "impatient", "impatient", "mighty", "mighty", "picky", "few", "nobody's"}

// podSets returns pods of one kind, with initializer also a model initializer.
func podSets(count int32, gpus, cpus int64, pool string, initializer bool) []v1alpha1.PodSet {
	set := func(name string, role v1alpha1.PodSetRole, count int32, gpus, cpus int64) v1alpha1.PodSet {
		return v1alpha1.PodSet{Name: name, Role: role, Count: count, Requests: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI), gpu: *resource.NewQuantity(gpus, resource.DecimalSI),
		}}
	}
	sets := []v1alpha1.PodSet{set("node", v1alpha1.RoleTrainer, count, gpus, cpus)}
	if pool != "" {
		sets[0].NodeSelector = map[string]string{"pool": pool}
	}
	if initializer {
		sets = append(sets, set("model-initializer", v1alpha1.RoleModelInitializer, 1, 0, 32))
	}
	return sets
}

func (w *world) arrive(s step) {
	w.born++
	team := teams[s.a%uint64(len(teams))]
	gpus := []int64{1, 2, 4, 8, 0}[s.b%5]
	count := int32(1 + s.b/8%5)
	if s.c%40 == 0 {
		count = 9 // No worker has room.
	}
	pool := ""
	if s.b/64%6 == 0 {
		pool = "b"
	}
	j := queue.Job{Created: w.now.Truncate(20 * time.Minute), Since: w.now}
	j.Namespace, j.Name = "ns", fmt.Sprint("job-", w.born)
	j.UID = types.UID(fmt.Sprintf("%04x-%d", s.c>>48, w.born))
	j.Labels = map[string]string{"team": team}
	if j.Priority = int32(s.c / 64 % 3); team == "mighty" {
		j.Priority++
	}
	j.PodSets = podSets(count, gpus, max(1, 4*gpus), pool, s.c/16%5 == 0)
	if s.c/256%4 == 0 {
		j.Topology = &dispatch.Topology{Label: "pool", Required: s.c/1024%2 == 0}
	}
	if s.c/4096%3 == 0 {
		j.Own = w.own(s)
	}
	w.stand(j)
}

// own is a demand on workers that have a runtime of their own. One worker cannot run the job with its runtime.
func (w *world) own(s step) *dispatch.OwnDemand {
	gpus, count := []int64{1, 2, 4, 8, 0}[s.b/512%5], int32(1+s.b/4096%5)
	variants := []*dispatch.Variant{{Runtime: "torch", PodSets: podSets(count, gpus, max(1, 4*gpus), "", false)}, {Runtime: "torch", Fault: "none"}}
	on := map[v1alpha1.ClusterName]*dispatch.Variant{}
	for i, site := range w.fleet.sites {
		switch (s.a/64 + uint64(i)) % 8 {
		case 0, 1, 2:
			on[site.Name] = variants[0]
		case 3:
			on[site.Name] = variants[1]
		}
	}
	return dispatch.NewOwnDemand(on)
}

func (w *world) stand(j queue.Job) {
	j.Policies = w.policies
	policy := ""
	if p, _, err := dispatch.SelectPolicy(j.Policies, j.Job); err == nil && p != nil {
		policy = fmt.Sprint(p.Name, p.Spec)
	}
	own, _ := json.Marshal(j.Own)
	j.Class = fmt.Sprint(j.PodSets, j.Excluded, policy, string(own))
	if j.Topology != nil {
		j.Class += fmt.Sprint(*j.Topology)
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(other queue.Job) bool { return other.UID == j.UID })
	w.waiting = append(w.waiting, j)
	w.Enter(j)
}

func pick[T any](from []T, n uint64) (T, bool) {
	if len(from) == 0 {
		var none T
		return none, false
	}
	return from[n%uint64(len(from))], true
}

func (w *world) do(s step) {
	j, waits := pick(w.waiting, s.b)
	site, _ := pick(w.fleet.sites, s.a)
	switch s.what {
	case "arrive":
		w.arrive(s)
	case "end":
		if uid, ok := pick(w.uids(func(*runs) bool { return true }), s.a); ok {
			w.gone(uid)
		}
	case "vanish": // The last pod of a job that is being stopped ends.
		if uid, ok := pick(w.evicting(), s.a); ok {
			w.stand(w.gone(uid))
		}
	case "leave":
		if waits {
			w.waiting = slices.DeleteFunc(w.waiting, func(other queue.Job) bool { return other.UID == j.UID })
			w.Leave(j.Key())
		}
	case "age":
		if waits {
			j.Priority = int32(s.c % 3)
			w.stand(j)
		}
	case "exclude":
		if waits {
			j.Excluded = map[v1alpha1.ClusterName]dispatch.Exclusion{site.Name: {Reason: v1alpha1.ReasonRejected, Message: "no"}}
			if s.c%2 == 0 {
				j.Excluded = nil
			}
			w.stand(j)
		}
	case "own": // The runtime of some workers has changed.
		if waits {
			j.Own = w.own(s)
			w.stand(j)
		}
	case "cordon":
		site.Cordoned = !site.Cordoned
		w.touch(site)
	case "ready":
		site.NotReady = map[string]string{"": "Unreachable"}[site.NotReady]
		w.touch(site)
	case "label":
		site.Labels = map[string]string{"region": []string{"eu", "us"}[s.b%2]}
		w.touch(site)
	case "node":
		site.grow(node{pool: []string{"a", "b"}[s.b%2], cpus: 64_000, gpus: int64(4 + 4*(s.c%2)), added: s.c/2%3 == 0})
	case "worker":
		w.worker(s, site)
	case "policy":
		w.policies = newPolicies(s.a)
		for _, j := range slices.Clone(w.waiting) {
			w.stand(j)
		}
	case "wait":
		w.now = w.now.Add(time.Duration(s.a%12) * time.Minute)
		w.fleet.now = w.now
	case "pass":
		w.pass()
	}
}

func (w *world) gone(uid types.UID) queue.Job {
	return w.end(uid).job
}

func (w *world) worker(s step, site *site) {
	switch len(w.fleet.sites) {
	case w.most - 3:
	case w.most:
		w.fleet.remove(site.Name)
		return
	default:
		if s.b%2 == 0 {
			w.fleet.remove(site.Name)
			return
		}
	}
	w.born++
	w.fleet.add(v1alpha1.ClusterName(fmt.Sprint("extra-", w.born)), 1+int(s.c%3)).Labels = map[string]string{"region": "eu"}
}

// pass calls the decider, and logs what it does.
func (w *world) pass() {
	for _, o := range w.Pass(w.now, w.fleet) {
		switch {
		case o.Decision.Cluster != "":
			w.waiting = slices.DeleteFunc(w.waiting, func(j queue.Job) bool { return j.UID == o.Job.UID })
			w.log = append(w.log, fmt.Sprintf("%s to %s", o.Job.UID, o.Decision.Cluster))
		case o.Preemption != nil:
			text := fmt.Sprintf("%s on %s preempts", o.Job.UID, o.Preemption.Cluster)
			for _, v := range o.Preemption.Victims {
				text += " " + string(v.UID)
			}
			w.log = append(w.log, text)
		}
	}
	last := queue.Job{Job: dispatch.Job{UID: "~", Priority: -1}}
	w.fleet.sort()
	for _, s := range w.fleet.sites {
		if holder := w.HeldFor(s.Name, &last); holder != nil {
			w.log = append(w.log, fmt.Sprintf("  %s is held for %s", s.Name, holder.UID))
		}
	}
}
