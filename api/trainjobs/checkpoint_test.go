// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func TestCheckpointURI(t *testing.T) {
	for name, test := range map[string]struct {
		value, want, fault string
	}{
		"Expanded":       {value: "s3://ckpt/$(NAMESPACE)/$(UID)", want: "s3://ckpt/team/1-2"},
		"Plain":          {value: "gs://ckpt/llm?versions=3", want: "gs://ckpt/llm?versions=3"},
		"File":           {value: "file:///mnt/ckpt", want: "file:///mnt/ckpt"},
		"Claim":          {value: "pvc:ckpt", want: "pvc:ckpt"},
		"Empty":          {fault: "must be a URI such as s3://bucket"},
		"Path":           {value: "/mnt/ckpt", fault: "must be a URI such as s3://bucket"},
		"NoPlace":        {value: "s3://", fault: "must be a URI such as s3://bucket"},
		"Opaque":         {value: "s3:ckpt", fault: "must be a URI such as s3://bucket"},
		"OtherVariable":  {value: "s3://ckpt/$(HF_TOKEN)", fault: "only $(UID) and $(NAMESPACE)"},
		"WhiteSpace":     {value: "s3://ckpt/a b", fault: "no white space"},
		"Control":        {value: "s3://ckpt/\x00", fault: "no control characters"},
		"Password":       {value: "s3://key:secret@ckpt", fault: "must have no password"},
		"Long":           {value: "s3://" + strings.Repeat("x", 1020), fault: "at most 1024 bytes"},
		"ClaimWithPath":  {value: "pvc:ckpt/run", fault: `after "pvc:" comes the name`},
		"ClaimIsMissing": {value: "pvc:", fault: `after "pvc:" comes the name`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := CheckpointURI(test.value, "1-2", "team")
			check.Equal(t, test.want, got, "CheckpointURI(%q)", test.value)
			if test.fault == "" {
				check.Must(t, err)
			} else if err == nil || !strings.Contains(err.Error(), test.fault) {
				t.Errorf("CheckpointURI(%q) says %v, want %q", test.value, err, test.fault)
			}
		})
	}
}

// told is the spec of a Dispatch with all that can be said of checkpoints.
func told() *v1alpha1.DispatchSpec {
	return &v1alpha1.DispatchSpec{
		TrainJob: v1alpha1.TrainJobReference{Name: "llm", UID: "1-2"}, Cluster: "west", Attempt: 3,
		Checkpoint: &v1alpha1.Checkpoint{
			URI: "s3://ckpt/$5", PreviousCluster: "east", LastProgress: `{"metrics":[{"name":"$(TOKEN)","value":"1"}]}`,
			Grace: &v1alpha1.PodGrace{Seconds: 300, PodSets: []string{"launcher", "node"}},
		},
	}
}

func variables(pairs ...string) []any {
	var env []any
	for i := 0; i < len(pairs); i += 2 {
		env = append(env, map[string]any{"name": pairs[i], "value": pairs[i+1]})
	}
	return env
}

func TestAddCheckpointEnv(t *testing.T) {
	all := variables("TRAINYARD_JOB_UID", "1-2", "TRAINYARD_ATTEMPT", "3", "TRAINYARD_CHECKPOINT_URI", "s3://ckpt/$$5",
		"TRAINYARD_PREVIOUS_CLUSTER", "east", "TRAINYARD_LAST_PROGRESS", `{"metrics":[{"name":"$$(TOKEN)","value":"1"}]}`,
		"TRAINYARD_CLUSTER", "west")
	own := variables("TRAINYARD_ATTEMPT", "mine", "LR", "3e-4")
	var many []any
	for i := range MaxEnv - 2 {
		many = append(many, variables(fmt.Sprintf("E%d", i), "x")...)
	}
	first := told()
	first.Attempt, first.Checkpoint = 1, &v1alpha1.Checkpoint{}
	for name, test := range map[string]struct {
		reason  string
		spec    *v1alpha1.DispatchSpec
		copy    map[string]any
		want    map[string]any
		leftOut []string
	}{
		"Off": {
			reason: "nothing of the spec changes", spec: &v1alpha1.DispatchSpec{Attempt: 1},
			copy: map[string]any{}, want: map[string]any{},
		},
		"NoTrainer": {
			reason: "spec.trainer may be absent", spec: told(),
			copy: map[string]any{}, want: map[string]any{"trainer": map[string]any{"env": all}},
		},
		"FirstAttempt": {
			reason: "what is not known is not set, so that a runtime may have a default for it", spec: first, copy: map[string]any{},
			want: map[string]any{"trainer": map[string]any{"env": variables("TRAINYARD_JOB_UID", "1-2", "TRAINYARD_ATTEMPT", "1", "TRAINYARD_CLUSTER", "west")}},
		},
		"OwnVariables": {
			reason: "the user's variables stay, and come first", spec: told(),
			copy: map[string]any{"trainer": map[string]any{"image": "i", "env": own}},
			want: map[string]any{"trainer": map[string]any{"image": "i", "env": append(append(append([]any{}, own...), all[0]), all[2:]...)}},
		},
		"NoPlace": {
			reason: "the API takes 128 variables", spec: told(),
			copy:    map[string]any{"trainer": map[string]any{"env": many}},
			want:    map[string]any{"trainer": map[string]any{"env": append(append([]any{}, many...), all[:2]...)}},
			leftOut: []string{"TRAINYARD_CHECKPOINT_URI", "TRAINYARD_PREVIOUS_CLUSTER", "TRAINYARD_LAST_PROGRESS", "TRAINYARD_CLUSTER"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			copy := runtime.DeepCopyJSON(test.copy)
			check.Diff(t, test.leftOut, AddCheckpointEnv(copy, test.spec), "left out: "+test.reason)
			check.Diff(t, test.want, copy, "spec: "+test.reason)
		})
	}
	check.Equal(t, CheckpointVariables, len(all), "variables")
}

// A copy says what its Dispatch said, if the hub has lost the Dispatch.
func TestCheckpointOf(t *testing.T) {
	copy := New()
	copy.Object["spec"] = map[string]any{}
	if CheckpointOf(copy) != nil {
		t.Error("a copy without variables has a checkpoint")
	}
	spec := copy.Object["spec"].(map[string]any)
	AddCheckpointEnv(spec, told())
	patch, err := runtime.DefaultUnstructuredConverter.ToUnstructured(GracePatch(told().Checkpoint.Grace))
	check.Must(t, err)
	spec["runtimePatches"] = []any{patch}
	check.Diff(t, told().Checkpoint, CheckpointOf(copy), "CheckpointOf()")
}

// withReport is a TrainJob with this trainerStatus.
func withReport(report any) *unstructured.Unstructured {
	job := New()
	job.Object["status"] = map[string]any{"trainerStatus": report}
	return job
}

func TestProgressOf(t *testing.T) {
	if ProgressOf(New()) != nil || ProgressOf(withReport("text")) != nil {
		t.Error("a job without a report has made progress")
	}
	good := ProgressOf(withReport(map[string]any{
		"progressPercentage": int64(42), "estimatedRemainingSeconds": int64(60), "lastUpdatedTime": "2026-11-27T11:00:00Z",
		"metrics": []any{map[string]any{"name": "loss", "value": "0.1"}, map[string]any{"name": v1alpha1.MetricCheckpoint, "value": "1200"}},
	}))
	check.Equal(t, `{"progressPercentage":42,"estimatedRemainingSeconds":60,"metrics":[{"name":"loss","value":"0.1"},`+
		`{"name":"checkpoint_step","value":"1200"}],"lastUpdatedTime":"2026-11-27T11:00:00Z"}`, EncodeProgress(good), "JSON")
	check.Equal(t, "1200", LastCheckpoint(good), "last checkpoint")

	metrics := []any{"text", map[string]any{"name": strings.Repeat("n", 65), "value": "1"}}
	for i := range 300 {
		metrics = append(metrics, map[string]any{"name": fmt.Sprintf("<m%d>", i), "value": strings.Repeat("9", i%64)})
	}
	metrics = append(metrics, map[string]any{"name": v1alpha1.MetricCheckpoint, "value": "7"})
	bad := ProgressOf(withReport(map[string]any{
		"progressPercentage": int64(101), "estimatedRemainingSeconds": int64(-1), "lastUpdatedTime": "now", "metrics": metrics,
	}))
	if size := len(EncodeProgress(bad)); size > 1024 || size < 900 || bad.ProgressPercentage != nil || bad.LastUpdatedTime != nil {
		t.Errorf("a report of %d bytes is kept: %+v", size, bad)
	}
	check.Equal(t, "7", LastCheckpoint(bad), "the last checkpoint, behind too many metrics")
}

func TestHasTrained(t *testing.T) {
	job := func(name string, counters map[string]int64) *unstructured.Unstructured {
		fields := map[string]any{"name": name}
		for counter, value := range counters {
			fields[counter] = value
		}
		job := New()
		job.Object["status"] = map[string]any{"jobsStatus": []any{fields}}
		return job
	}
	for name, test := range map[string]struct {
		job  *unstructured.Unstructured
		want bool
	}{
		"NoStatus":    {job: New()},
		"Pending":     {job: job("node", map[string]int64{"active": 1})},
		"Running":     {job: job("node", map[string]int64{"active": 1, "ready": 1}), want: true},
		"Failed":      {job: job("node", map[string]int64{"failed": 1}), want: true},
		"Succeeded":   {job: job("launcher", map[string]int64{"succeeded": 1}), want: true},
		"Initializes": {job: job("dataset-initializer", map[string]int64{"active": 1, "ready": 1})},
	} {
		check.Equal(t, test.want, HasTrained(test.job), "HasTrained() of %s", name)
	}
}
