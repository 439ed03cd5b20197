// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func TestCopiedPhase(t *testing.T) {
	steps := func(states ...v1alpha1.StepState) []v1alpha1.Step {
		names := []string{v1alpha1.StepModelInitializer, v1alpha1.StepTrainer}
		var all []v1alpha1.Step
		for i, state := range states {
			all = append(all, v1alpha1.Step{Name: names[i], State: state})
		}
		return all
	}
	const waits, runs, done = v1alpha1.StepWaiting, v1alpha1.StepRunning, v1alpha1.StepSucceeded
	for name, test := range map[string]struct {
		reason     string
		shown, now v1alpha1.DispatchStatus
		want       v1alpha1.DispatchPhase
	}{
		"New":         {reason: "nothing has been reported", want: v1alpha1.PhaseStarting},
		"Waits":       {reason: "no step has begun", now: v1alpha1.DispatchStatus{Steps: steps(waits, waits)}, want: v1alpha1.PhaseStarting},
		"Initializes": {reason: "a step runs", now: v1alpha1.DispatchStatus{Steps: steps(runs, waits)}, want: v1alpha1.PhaseRunning},
		"Between": {
			reason: "the next step has to start",
			shown:  v1alpha1.DispatchStatus{Phase: v1alpha1.PhaseRunning, Steps: steps(runs, waits)},
			now:    v1alpha1.DispatchStatus{Steps: steps(done, waits)}, want: v1alpha1.PhaseStarting,
		},
		"LostAPod": {
			reason: "the step that ran has to start again",
			shown:  v1alpha1.DispatchStatus{Phase: v1alpha1.PhaseRunning, Steps: steps(done, runs)},
			now:    v1alpha1.DispatchStatus{Steps: steps(done, waits)}, want: v1alpha1.PhaseRestarting,
		},
		"StillRestarts": {
			reason: "it has not come up again",
			shown:  v1alpha1.DispatchStatus{Phase: v1alpha1.PhaseRestarting, Steps: steps(done, waits)},
			now:    v1alpha1.DispatchStatus{Steps: steps(done, waits)}, want: v1alpha1.PhaseRestarting,
		},
		"JobSetRestarts": {
			reason: "the JobSet has counted a restart", now: v1alpha1.DispatchStatus{Steps: steps(waits, waits), Restarts: 1},
			want: v1alpha1.PhaseRestarting,
		},
		"RunsAgain": {
			reason: "it has come up again", shown: v1alpha1.DispatchStatus{Phase: v1alpha1.PhaseRestarting},
			now: v1alpha1.DispatchStatus{Steps: steps(done, runs), Restarts: 2}, want: v1alpha1.PhaseRunning,
		},
		"Done": {reason: "nothing is left to start", now: v1alpha1.DispatchStatus{Steps: steps(done, done), Restarts: 1}, want: v1alpha1.PhaseRunning},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, CopiedPhase(&test.shown, &test.now), "CopiedPhase(): %s", test.reason)
		})
	}
}
