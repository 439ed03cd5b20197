// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
)

// A worker writes all that its CRD takes into the status of a copy: the limits of the CRD count characters. The hub
// shows the end of the job and the counters, and stores a small part of the words.
func TestLargeStatusIsCut(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	var conditions []any
	for i := range 7 {
		conditions = append(conditions, condition(fmt.Sprint("Large", i), "True", strings.Repeat("𝄞", 30000)))
	}
	s.tell(t, conditions, 3)
	s.Clock.Step(statusWindow)
	s.reconcile(t)
	s.Clock.Step(statusWindow)
	s.reconcile(t)
	shown := s.job(t)
	if size := statusSize(t, shown); size == 0 || size > trainjobs.MaxStatus {
		t.Errorf("the status on the hub has %d bytes, want at most %d", size, trainjobs.MaxStatus)
	}
	if jobs := trainjobs.JobsStatus(shown); len(jobs) != 1 || *jobs[0].Active != 3 {
		t.Errorf("the counters are %+v, want one with 3 active pods", jobs)
	}
	if !trainjobs.HasCondition(shown, "Large6") {
		t.Error("a condition of a type that the hub does not know is not shown, though its type has room")
	}

	s.tell(t, append(conditions, condition("Complete", "True", strings.Repeat("𝄞", 30000))), 0)
	s.reconcile(t)
	ended := s.job(t)
	if end := trainjobs.Terminal(ended); end == nil || end.Type != "Complete" {
		t.Errorf("the job has not ended: %+v", end)
	}
	if size := statusSize(t, ended); size > trainjobs.MaxStatus {
		t.Errorf("the status on the hub has %d bytes, want at most %d", size, trainjobs.MaxStatus)
	}
}

// A copy that changes for ever is written less and less often, on TrainJob and Dispatch. Its end is written at once.
func TestCopyThatChangesForEver(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	jobWrites, dispatchWrites := 0, 0
	job, dispatch := s.job(t).GetResourceVersion(), s.dispatch(t).ResourceVersion
	const seconds = 120
	for i := range seconds {
		s.tell(t, []any{condition("Storm", "True", fmt.Sprint(i))}, int64(i/2%2)) // The step is Waiting or Running.
		s.Clock.Step(time.Second)
		s.reconcile(t)
		if now := s.job(t).GetResourceVersion(); now != job {
			job, jobWrites = now, jobWrites+1
		}
		if now := s.dispatch(t).ResourceVersion; now != dispatch {
			dispatch, dispatchWrites = now, dispatchWrites+1
		}
	}
	t.Logf("%d writes of the TrainJob and %d of the Dispatch in %d s", jobWrites, dispatchWrites, seconds)
	if jobWrites < 12 || jobWrites > 20 {
		t.Errorf("%d writes of the TrainJob, want ten and then ever fewer", jobWrites) // Without a limit there are 60.
	}
	if dispatchWrites < 12 || dispatchWrites > 20 {
		t.Errorf("%d writes of the Dispatch, want ten and then ever fewer", dispatchWrites)
	}
	s.tell(t, []any{condition("Complete", "True", "done")}, 0)
	s.reconcile(t)
	if trainjobs.Terminal(s.job(t)) == nil || !s.dispatch(t).IsFinished() {
		t.Error("the end of the job waits")
	}
}

// A worker that has used up its budget delays what changes on it. First statuses and ends do not wait.
func TestWorkerWithoutBudget(t *testing.T) {
	s := newScene(t, setting{})
	s.options.Budget = mirror.NewBudget()
	s.restart()
	s.reconcile(t)
	s.options.Budget.Drain(s.Clock.Now(), 20*time.Second)
	s.tell(t, nil, 1)
	s.reconcile(t)
	s.Clock.Step(statusWindow)
	s.reconcile(t)
	first := s.job(t)
	if len(trainjobs.JobsStatus(first)) != 1 {
		t.Fatal("the first status of the copy waits")
	}

	s.tell(t, nil, 2)
	s.reconcile(t)
	s.Clock.Step(statusWindow)
	if result := s.reconcile(t); result.RequeueAfter == 0 || s.job(t).GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("a change was written, or is not looked at again (%+v), though the worker has no budget", result)
	}
	s.Clock.Step(20 * time.Second)
	s.reconcile(t)
	if jobs := trainjobs.JobsStatus(s.job(t)); len(jobs) != 1 || *jobs[0].Active != 2 {
		t.Errorf("the change is not shown after its turn has come: %+v", jobs)
	}

	s.options.Budget.Drain(s.Clock.Now(), 20*time.Second)
	s.tell(t, []any{condition("Failed", "True", "it broke")}, 0)
	s.reconcile(t)
	if trainjobs.Terminal(s.job(t)) == nil || !s.dispatch(t).IsFinished() {
		t.Error("the end of the job waits")
	}
}

// tell writes the status of the copy, and waits until the worker's cache shows it. ready is the number of ready jobs.
func (s *scene) tell(t *testing.T, conditions []any, active int64) {
	t.Helper()
	copy := s.copy(t)
	copy.Object["status"] = map[string]any{"jobsStatus": []any{map[string]any{
		"name": "node", "active": active, "ready": active, "succeeded": int64(0), "failed": int64(0), "suspended": int64(0),
	}}}
	if len(conditions) > 0 {
		must(t, unstructured.SetNestedSlice(copy.Object, conditions, "status", "conditions"))
	}
	must(t, s.worker.Admin.Status().Update(t.Context(), copy))
	s.settle(t)
}

func condition(kind, status, message string) map[string]any {
	return map[string]any{
		"type": kind, "status": status, "reason": "Because", "message": message, "lastTransitionTime": "2026-01-02T03:04:05Z",
	}
}

func statusSize(t *testing.T, job *unstructured.Unstructured) int {
	t.Helper()
	encoded, err := json.Marshal(job.Object["status"])
	must(t, err)
	return len(encoded)
}
