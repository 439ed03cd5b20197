// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// TestGet: pods of workers look as if they ran on the hub, as a table, as JSON and by name.
func TestGet(t *testing.T) {
	t.Parallel()
	a := submit(t, yard.Job{Name: "get-a", Nodes: 2}, east, "")
	b := submit(t, yard.Job{Name: "get-b"}, west, "")
	podsOfA, podsOfB := runs(t, east, a), runs(t, west, b)
	both := append(append([]string{}, podsOfA...), podsOfB...)
	for name, tc := range map[string]struct {
		args      []string
		want, not []string
	}{
		"Table":     {args: []string{"get", "pods"}, want: append([]string{"NAME", "READY", "Running"}, both...)},
		"Wide":      {args: []string{"get", "pods", "-o", "wide"}, want: append([]string{"NODE", "east-0", "west-"}, both...)},
		"Names":     {args: []string{"get", "pods", "-o", "name"}, want: both},
		"Sorted":    {args: []string{"get", "pods", "--sort-by=.metadata.name"}, want: both},
		"Chunks":    {args: []string{"get", "pods", "--chunk-size=1"}, want: both},
		"Cluster":   {args: []string{"get", "pods", "-L", "trainyard.dev/cluster"}, want: append([]string{"CLUSTER", east, west}, both...)},
		"OfJob":     {args: []string{"get", "pods", "-l", "jobset.sigs.k8s.io/jobset-name=get-a"}, want: podsOfA, not: podsOfB},
		"OfCluster": {args: []string{"get", "pods", "-l", "trainyard.dev/cluster=west"}, want: podsOfB, not: podsOfA},
		"Phase":     {args: []string{"get", "pods", "--field-selector=status.phase=Failed"}, not: both},
		"ByName":    {args: []string{"get", "pod", podsOfB[0]}, want: []string{"READY", podsOfB[0]}, not: podsOfA},
		"Describe":  {args: []string{"describe", "pod", podsOfA[0]}, want: []string{"trainyard.dev/cluster=east", "Successfully assigned"}},
		"Events":    {args: []string{"events", "--for", "pod/" + podsOfA[0]}, want: []string{"Scheduled", podsOfA[0]}},
		"AllEvents": {args: []string{"get", "events"}, want: []string{"Placed", "job/get-a-node-0", "job/get-b-node-0"}, not: []string{"<unknown>"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := viewer.Kubectl(t.Context(), tc.args...)
			check.Equal(t, 0, r.Code, "code of %v: %s", tc.args, r)
			contains(t, r.Out, tc.want...)
			for _, not := range tc.not {
				if strings.Contains(r.Out, not) {
					t.Errorf("there is %q in\n%s", not, r.Out)
				}
			}
		})
	}
	t.Run("JSON", func(t *testing.T) {
		t.Parallel()
		var pods corev1.PodList
		check.Must(t, json.Unmarshal([]byte(viewer.Kubectl(t.Context(), "get", "--raw", "/api/v1/namespaces/"+team+"/pods").Out), &pods))
		found := map[string]corev1.Pod{}
		for _, pod := range pods.Items {
			found[pod.Name] = pod
		}
		for _, name := range both {
			pod, there := found[name]
			if !there || pod.Labels["trainyard.dev/cluster"] == "" || pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName == "" {
				t.Errorf("pod %s is %v", name, pod)
			}
		}
	})
}

// TestOthersSeeNothing: the hub decides who sees pods of workers, and says so in its own words.
func TestOthersSeeNothing(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "private"}, east, "secret")
	pod := runs(t, east, job)[0]
	for name, args := range map[string][]string{
		"List": {"get", "pods", "-n", team}, "All": {"get", "pods", "-A"}, "Get": {"get", "pod", pod, "-n", team}, "Log": {"logs", pod, "-n", team},
		"Exec": {"exec", pod, "-n", team, "--", "true"}, "Events": {"get", "events", "-n", team}, "Delete": {"delete", "pod", pod, "-n", team},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := stranger.Kubectl(t.Context(), args...)
			check.Equal(t, 1, r.Code, "code: %s", r)
			contains(t, r.Err, "Forbidden", `User "system:serviceaccount:audio:sam" cannot`)
			if strings.Contains(r.Out+r.Err, "secret") {
				t.Errorf("the log is shown: %s", r)
			}
		})
	}
	t.Run("ExecOfAViewer", func(t *testing.T) {
		t.Parallel()
		r := viewer.Kubectl(t.Context(), "exec", pod, "--", "true")
		check.Equal(t, 1, r.Code, "code: %s", r)
		contains(t, r.Err, "orbidden", "vic")
	})
}

// TestChangesAreRefused: pods of workers cannot be changed from the hub, and the answer says what to do instead.
func TestChangesAreRefused(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "changed"}, east, "")
	pod := runs(t, east, job)[0]
	for name, args := range map[string][]string{
		"Delete": {"delete", "pod", pod}, "Label": {"label", "pod", pod, "a=b"}, "Debug": {"debug", pod, "--image=busybox", "--profile=general"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := editor.Kubectl(t.Context(), args...)
			check.Equal(t, 1, r.Code, "code: %s", r)
			contains(t, r.Err, `runs on worker "east"`, `delete TrainJob "changed"`)
		})
	}
}

// TestWaitingJob: who asks for the pods of a job that waits is told why there are none.
func TestWaitingJob(t *testing.T) {
	t.Parallel()
	submit(t, yard.Job{Name: "waits", Nodes: 1, GPUs: 64}, east, "")
	eventually(t, func() bool {
		r := viewer.Kubectl(t.Context(), "get", "pods", "-l", "jobset.sigs.k8s.io/jobset-name=waits")
		return r.Code == 0 && strings.Contains(r.Err, "TrainJob vision/waits waits: ") && strings.Contains(r.Err, "No resources found")
	})
}
