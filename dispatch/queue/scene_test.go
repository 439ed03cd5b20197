// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/test/check"
)

// scene is a queue and its fleet. The label team of a job selects its policy from newPolicies.
type scene struct {
	*fleet
	*queue.Queue
	now time.Time
}

// newScene returns a scene with workers a, b and so on. Each has its number of nodes with 8 GPUs.
func newScene(t *testing.T, nodes ...int) *scene {
	s := &scene{fleet: newFleet(t), Queue: queue.New(), now: start}
	for i, count := range nodes {
		s.add(v1alpha1.ClusterName('a'+rune(i)), count).Labels = map[string]string{"region": "eu", "name": string('a' + rune(i))}
	}
	return s
}

// made is a job of a number of pods with a number of GPUs each, created at a minute. Its name is also its UID.
type made struct {
	name     string
	team     string
	pods     int32
	gpus     int64
	priority int32
	minute   int
	excluded v1alpha1.ClusterName
	on       string // The job is pinned to this worker.
}

func (m made) job() queue.Job {
	j := queue.Job{Policies: newPolicies(0)}
	j.Namespace, j.Name, j.UID, j.Priority = "ns", m.name, types.UID(m.name), m.priority
	j.Labels = map[string]string{"team": m.team}
	if m.team == "" {
		j.Labels["team"] = "best"
	}
	j.Created = start.Add(time.Duration(m.minute) * time.Minute)
	j.Since = j.Created
	j.PodSets = podSets(m.pods, m.gpus, 1, "", false)
	if m.excluded != "" {
		j.Excluded = map[v1alpha1.ClusterName]dispatch.Exclusion{m.excluded: {Reason: v1alpha1.ReasonRejected, Message: "denied"}}
	}
	if m.on != "" {
		j.Annotations = map[string]string{v1alpha1.AnnotationClusters: "name=" + m.on}
	}
	j.Class = fmt.Sprint(m.pods, m.gpus, m.team, m.excluded, m.on)
	return j
}

func (s *scene) stand(jobs ...made) {
	for _, m := range jobs {
		s.Enter(m.job())
	}
}

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

// pass moves the time, and returns which jobs were placed and which preempt, in order.
func (s *scene) pass(minutes int) (did []string) {
	s.now = s.now.Add(time.Duration(minutes) * time.Minute)
	s.fleet.now = s.now
	for _, o := range s.Pass(s.now, s.fleet) {
		switch {
		case o.Decision.Cluster != "":
			did = append(did, fmt.Sprintf("%s to %s", o.Job.Name, o.Decision.Cluster))
		case o.Preemption != nil:
			text := fmt.Sprintf("%s preempts on %s", o.Job.Name, o.Preemption.Cluster)
			for _, v := range o.Preemption.Victims {
				text += " " + string(v.UID)
			}
			did = append(did, text)
		}
	}
	return did
}

func (s *scene) ends(names ...string) {
	for _, name := range names {
		s.end(types.UID(name))
	}
}

// answers returns the reason for each waiting job, in order.
func (s *scene) answers() (answers []string) {
	for _, key := range s.Keys() {
		answer, ok := s.Answer(key)
		if !ok {
			answer.Reason = "?"
		}
		answers = append(answers, key.Name+" "+answer.Reason)
	}
	return answers
}

func (s *scene) check(t *testing.T, what string, want, got []string) {
	t.Helper()
	check.Diff(t, want, got, what, cmpopts.EquateEmpty())
}

// act is one event, and then a pass.
type act struct {
	stand   []made
	end     []string // Jobs that end while they run.
	leave   []string // Jobs that end while they wait.
	vanish  []made   // Jobs that were stopped. They wait again.
	change  func(*scene)
	minutes int
	restart bool // A new queue replaces the old one.
	// want has the jobs that are placed or preempt, in order. waits has the reasons of the jobs that still wait. held has
	// the workers that are held.
	want, waits, held []string
}

func (s *scene) act(a act) {
	s.stand(a.stand...)
	s.ends(a.end...)
	for _, name := range a.leave {
		s.Leave(key(name))
	}
	for _, m := range a.vanish {
		s.ends(m.name)
		s.stand(m)
	}
	if a.change != nil {
		a.change(s)
	}
	if a.restart {
		old := s.Queue
		s.Queue = queue.New()
		for _, key := range old.Keys() {
			s.Enter(*old.Job(key))
		}
	}
}

func (s *scene) held() (held []string) {
	last := queue.Job{Job: dispatch.Job{Priority: -1}}
	for _, site := range s.sites {
		if holder := s.HeldFor(site.Name, &last); holder != nil {
			held = append(held, fmt.Sprintf("%s for %s", site.Name, holder.Name))
		}
	}
	return held
}

// calm passes again. That pass must do and report nothing.
func (s *scene) calm(t *testing.T) {
	t.Helper()
	before := s.asked
	if outcomes := s.Pass(s.now, s.fleet); len(outcomes) > 0 {
		t.Errorf("passing again says of %s: %+v", outcomes[0].Job.Name, outcomes[0].Decision)
	}
	check.Equal(t, before, s.asked, "passing again asks the fleet %d questions", s.asked-before)
}
