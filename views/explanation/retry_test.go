// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation_test

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/views/explanation"
)

func TestRetry(t *testing.T) {
	waits := func(reason string) func(*v1alpha1.Dispatch) {
		return with(condition(v1alpha1.DispatchPlaced, "False", reason, "words"))
	}
	refused := func(d *v1alpha1.Dispatch) {
		d.Status.Refusals = []v1alpha1.Refusal{{Cluster: "west", Outcome: v1alpha1.OutcomeRejected, Count: 1}}
		d.Status.Explanation = []v1alpha1.ClusterExplanation{
			{Cluster: "east", Reason: v1alpha1.ReasonRejected}, {Cluster: "north", Reason: v1alpha1.ReasonCordoned}, {Cluster: "west", Reason: v1alpha1.ReasonRejected},
		}
	}
	const not = `TrainJob "llama" is not retried: `
	for name, test := range map[string]struct {
		reason   string
		job      *unstructured.Unstructured
		dispatch *v1alpha1.Dispatch
		want     string
		wantErr  string
	}{
		"Refused": {
			reason: "by its copy, and before it had one", job: trainJob(), dispatch: dispatchOf(waits(v1alpha1.ReasonRejected), refused),
			want: "asked again: east, west",
		},
		"NoRoom": {
			reason: "nobody has refused it", job: trainJob(), dispatch: dispatchOf(waits(v1alpha1.ReasonNoFit)),
			want: "no worker has refused it, it waits for room (NoFit)",
		},
		"Missing": {
			reason: "no worker helps", job: trainJob(), dispatch: dispatchOf(waits(v1alpha1.ReasonRuntimeNotFound)),
			wantErr: not + "it waits for something that no worker decides: Waiting (RuntimeNotFound): words",
		},
		"Running": {
			reason: "it has a worker", job: trainJob(),
			dispatch: dispatchOf(placed, with(condition(v1alpha1.DispatchMirrored, "True", v1alpha1.ReasonCopied, ""))),
			wantErr:  not + "it has a worker: Running on worker west",
		},
		"Suspended": {
			reason: "it does not wait for a worker", job: trainJob(suspended), dispatch: dispatchOf(waits(v1alpha1.ReasonSuspended), refused),
			wantErr: not + "it is suspended; the workers are asked when it is resumed: Suspended",
		},
		"Ended": {
			reason: "no attempt follows", job: trainJob(failed), dispatch: dispatchOf(refused),
			wantErr: not + "it has ended; create it again to run it again: Failed: exit code 1",
		},
		"NotOurs": {
			reason: "Trainyard does not place it", job: trainJob(managedBy("trainer.kubeflow.org/trainjob-controller")),
			wantErr: not + "it does not wait for a worker: Not managed by Trainyard: spec.managedBy is",
		},
		"New": {reason: "nobody was asked", job: trainJob(), wantErr: not + "it does not wait for a worker: Not seen by Trainyard yet"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := explanation.Observation{Job: test.job, Dispatch: test.dispatch, Now: now}.Retry()
			check.Equal(t, test.want, got, "%s", test.reason)
			if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.HasPrefix(err.Error(), test.wantErr)) {
				t.Errorf("%s: error %v, want %q", test.reason, err, test.wantErr)
			}
		})
	}
}

// A job that was given up shows why, also when its TrainJob is Failed.
func TestGivenUp(t *testing.T) {
	given := dispatchOf(explained, with(condition(v1alpha1.DispatchPlaced, "False", v1alpha1.ReasonGivenUp, "no worker took the job within 1h0m0s")))
	for name, test := range map[string]struct {
		job  *unstructured.Unstructured
		want []string
	}{
		"OnRecord": {job: trainJob(), want: []string{"Waiting (GivenUp)", "no worker took the job within 1h0m0s"}},
		"Failed":   {job: trainJob(failed), want: []string{"Failed (GivenUp)", "exit code 1", "create the job again", "Workers:"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			check.Must(t, explanation.Describe(&out, explanation.Observation{Job: test.job, Dispatch: given, Now: now}, false))
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
			if words, err := (explanation.Observation{Job: test.job, Dispatch: given, Now: now}).Retry(); err == nil {
				t.Errorf("the job is retried: %s", words)
			}
		})
	}
}
