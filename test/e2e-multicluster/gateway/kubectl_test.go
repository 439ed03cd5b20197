// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// TestGet: pods of workers look as if they ran on the hub, as a table, as JSON and by name.
func TestGet(t *testing.T) {
	t.Parallel()
	// Workers are asked in the order of their names, so pods come in another order than that of their names.
	b := submit(t, yard.Job{Name: "get-b", Nodes: 2}, east, "")
	a := submit(t, yard.Job{Name: "get-a"}, west, "")
	podsOfB, podsOfA := runs(t, east, b), runs(t, west, a)
	both := append(append([]string{}, podsOfB...), podsOfA...)
	slices.Sort(both)
	for name, tc := range map[string]struct {
		args      []string
		want, not []string
	}{
		"Table":     {args: []string{"get", "pods"}, want: append([]string{"NAME", "READY", "Running"}, both...)},
		"Wide":      {args: []string{"get", "pods", "-o", "wide"}, want: append([]string{"NODE", "east-0", "west-"}, both...)},
		"Names":     {args: []string{"get", "pods", "-o", "name"}, want: both},
		"Cluster":   {args: []string{"get", "pods", "-L", "trainyard.dev/cluster"}, want: append([]string{"CLUSTER", east, west}, both...)},
		"OfJob":     {args: []string{"get", "pods", "-l", "jobset.sigs.k8s.io/jobset-name=get-a"}, want: podsOfA, not: podsOfB},
		"OfCluster": {args: []string{"get", "pods", "-l", "trainyard.dev/cluster=west"}, want: podsOfA, not: podsOfB},
		"Phase":     {args: []string{"get", "pods", "--field-selector=status.phase=Failed"}, not: both},
		"ByName":    {args: []string{"get", "pod", podsOfB[0]}, want: []string{"READY", podsOfB[0]}, not: podsOfA},
		"Describe":  {args: []string{"describe", "pod", podsOfA[0]}, want: []string{"trainyard.dev/cluster=west", "Successfully assigned"}},
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
	t.Run("Sorted", func(t *testing.T) {
		t.Parallel()
		ofBoth := "jobset.sigs.k8s.io/jobset-name in (get-a, get-b)"
		order := func(more ...string) []string {
			r := viewer.Kubectl(t.Context(), append([]string{"get", "pods", "--no-headers", "-l", ofBoth}, more...)...)
			check.Equal(t, 0, r.Code, "code: %s", r)
			return firstWords(r.Out)
		}
		check.Diff(t, both, order("--sort-by=.metadata.name"), "pods by name")
		if unsorted := order(); slices.IsSorted(unsorted) {
			t.Errorf("pods are sorted without the flag, so this test shows nothing: %v", unsorted)
		}
	})
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

// firstWords returns the first word of each line.
func firstWords(text string) (words []string) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 0 {
			words = append(words, fields[0])
		}
	}
	return words
}

// TestChunks: a client that lists in chunks gets each pod once: the hub's own in chunks where no worker has any, and
// everything in one answer where a worker has some.
func TestChunks(t *testing.T) {
	t.Parallel()
	const chunked = "chunked"
	check.Must(t, y.Hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: chunked}}))
	u, err := y.NewUser(t.Context(), chunked, "chuck", "view")
	check.Must(t, err)
	names := []string{"hubs-1", "hubs-2", "hubs-3"}
	for _, name := range names {
		pod := idle(name, nil)
		pod.Namespace = chunked
		create(t, y.Hub, pod)
	}
	path := "/api/v1/namespaces/" + chunked + "/pods"
	// page lists one page, and returns its names and the token for the next one.
	page := func(next string) (found []string, more string) {
		query := url.Values{"limit": {"1"}}
		if next != "" {
			query.Set("continue", next)
		}
		a := send(t, u, http.MethodGet, path, query, nil)
		check.Equal(t, http.StatusOK, a.code, "code: %s", a.body)
		var pods corev1.PodList
		check.Must(t, json.Unmarshal(a.body, &pods))
		for i := range pods.Items {
			found = append(found, pods.Items[i].Name)
		}
		return found, pods.Continue
	}
	var pages [][]string
	for next := ""; ; {
		found, more := page(next)
		pages = append(pages, found)
		if next = more; next == "" {
			break
		}
	}
	check.Diff(t, [][]string{{"hubs-1"}, {"hubs-2"}, {"hubs-3"}}, pages, "pages of the hub's own pods")
	r := u.Kubectl(t.Context(), "get", "pods", "--no-headers", "--chunk-size=1", "-v=6")
	check.Diff(t, names, firstWords(r.Out), "pods of kubectl")
	check.Equal(t, 3, strings.Count(r.Err, path+"?"), "requests of kubectl: %s", r.Err)

	job := submit(t, yard.Job{Namespace: chunked, Name: "in-chunks", Nodes: 2}, east, "")
	names = append(names, runs(t, east, job)...)
	slices.Sort(names)
	found, more := page("")
	slices.Sort(found)
	check.Diff(t, names, found, "pods of hub and worker")
	check.Equal(t, "", more, "token for a page after the last one")
	r = u.Kubectl(t.Context(), "get", "pods", "--no-headers", "--chunk-size=1")
	found = firstWords(r.Out)
	slices.Sort(found)
	check.Diff(t, names, found, "pods of kubectl, with those of the worker")
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
	before := &corev1.Pod{}
	check.Must(t, y.Workers[east].Get(t.Context(), client.ObjectKey{Namespace: team, Name: pod}, before))
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
	path := "/api/v1/namespaces/" + team + "/pods/" + pod
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}
	for name, tc := range map[string]struct {
		method, path string
		body         any
	}{
		"RawDelete":           {method: http.MethodDelete, path: path},
		"RawPatch":            {method: http.MethodPatch, path: path, body: patch},
		"RawUpdate":           {method: http.MethodPut, path: path, body: idle(pod, nil)},
		"RawStatus":           {method: http.MethodPatch, path: path + "/status", body: patch},
		"RawResize":           {method: http.MethodPatch, path: path + "/resize", body: patch},
		"EphemeralContainers": {method: http.MethodPatch, path: path + "/ephemeralcontainers", body: patch},
		"Eviction":            {method: http.MethodPost, path: path + "/eviction", body: &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: pod}}},
		"Binding":             {method: http.MethodPost, path: path + "/binding", body: &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: "east-0"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := send(t, editor, tc.method, tc.path, nil, tc.body)
			check.Equal(t, http.StatusMethodNotAllowed, a.code, "code: %s", a.body)
			var said metav1.Status
			check.Must(t, json.Unmarshal(a.body, &said))
			check.Diff(t, metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
				Message: fmt.Sprintf(`pod %q runs on worker "east" and cannot be changed from the hub: change, suspend or delete TrainJob "changed"`, pod),
			}, said, "answer")
		})
	}
	t.Run("DeleteCollection", func(t *testing.T) {
		t.Parallel()
		query := url.Values{"labelSelector": {"jobset.sigs.k8s.io/jobset-name=changed"}}
		a := send(t, editor, http.MethodDelete, "/api/v1/namespaces/"+team+"/pods", query, nil)
		check.Equal(t, http.StatusOK, a.code, "code of a deletion that the hub answers, which has no such pod: %s", a.body)
	})
	t.Cleanup(func() { // All requests have been answered by now.
		var after corev1.Pod
		check.Must(t, y.Workers[east].Get(context.Background(), client.ObjectKeyFromObject(before), &after))
		if after.UID != before.UID || after.DeletionTimestamp != nil || after.Labels["a"] != "" || len(after.Spec.EphemeralContainers) > 0 {
			t.Errorf("the pod on the worker has changed: %v", after)
		}
	})
}

// TestWaitingJob: who asks for the pods or the logs of a job that waits is told why there are none.
func TestWaitingJob(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "waits", Nodes: 1, GPUs: 64}, east, "")
	var why string
	y.Eventually(t, func(g gomega.Gomega) {
		placed := meta.FindStatusCondition(y.DispatchOf(g, job).Status.Conditions, v1alpha1.DispatchPlaced)
		g.Expect(placed).NotTo(gomega.BeNil())
		g.Expect(placed.Status).To(gomega.Equal(metav1.ConditionFalse))
		g.Expect(placed.Message).NotTo(gomega.BeEmpty())
		why = "Warning: TrainJob vision/waits waits: " + strings.TrimSuffix(placed.Message, ".") + "\n"
	})
	const pod, selector = "waits-node-0-0-x7k2p", "jobset.sigs.k8s.io/jobset-name=waits"
	const unknown = "error: error from server (NotFound): pods %q not found in namespace \"vision\"\n"
	const none = "No resources found in vision namespace.\n"
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"Pods":        {args: []string{"get", "pods", "-l", selector}, want: why + none},
		"LogsByLabel": {args: []string{"logs", "-l", selector}, want: why + none},
		"Follow":      {args: []string{"logs", "-f", "-l", selector}, want: why + none},
		"Pod":         {args: []string{"get", "pod", pod}, code: 1, want: why + fmt.Sprintf("Error from server (NotFound): pods %q not found\n", pod)},
		"Logs":        {args: []string{"logs", pod}, code: 1, want: why + fmt.Sprintf(unknown, pod)},
		"LogsOfJob":   {args: []string{"logs", "waits"}, code: 1, want: why + fmt.Sprintf(unknown, "waits")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := viewer.Kubectl(t.Context(), tc.args...)
			check.Equal(t, tc.code, r.Code, "code: %s", r)
			check.Diff(t, tc.want, r.Err, "words")
		})
	}
	t.Run("RawLog", func(t *testing.T) { // kubectl asks for the pod first, other clients do not.
		t.Parallel()
		a := send(t, viewer, http.MethodGet, "/api/v1/namespaces/"+team+"/pods/"+pod+"/log", nil, nil)
		check.Equal(t, http.StatusNotFound, a.code, "code: %s", a.body)
		contains(t, a.header.Get("Warning"), "TrainJob vision/waits waits: ")
	})
	t.Run("Stranger", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{"logs", pod, "-n", team}, {"logs", "-l", selector, "-n", team}} {
			r := stranger.Kubectl(t.Context(), args...)
			check.Equal(t, 1, r.Code, "code: %s", r)
			contains(t, r.Err, "Forbidden")
			if strings.Contains(r.Err, "waits:") {
				t.Errorf("somebody else is told why the job waits: %s", r)
			}
		}
	})
}
