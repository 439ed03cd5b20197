// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// idle is a pod that nobody schedules.
func idle(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "node", Image: "registry.example.com/idle"}}},
	}
}

func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	check.Must(t, c.Create(t.Context(), object))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(c.Delete(context.Background(), object))) })
}

// TestHubsOwnPods: pods of the hub are seen beside those of workers, can be changed, and -A works for who may list all.
func TestHubsOwnPods(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "beside"}, east, "")
	pod := runs(t, east, job)[0]
	create(t, y.Hub, idle("of-the-hub", nil))
	r := editor.Kubectl(t.Context(), "get", "pods")
	contains(t, r.Out, "of-the-hub", pod)
	r = editor.Kubectl(t.Context(), "label", "pod", "of-the-hub", "a=b")
	check.Equal(t, 0, r.Code, "code: %s", r)
	r = editor.Kubectl(t.Context(), "logs", "of-the-hub")
	check.Equal(t, "", r.Out+r.Err, "log of a pod of the hub that does not run")
	all := newSeer(t, "opal")
	r = all.Kubectl(t.Context(), "get", "pods", "-A")
	check.Equal(t, 0, r.Code, "code: %s", r)
	contains(t, r.Out, "NAMESPACE", "of-the-hub", pod)
	r = all.Kubectl(t.Context(), "get", "events", "-A")
	contains(t, r.Out, pod)
}

// TestForeignPods: what is in the same namespace of a worker and does not belong to a copy is not shown.
func TestForeignPods(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "ours"}, east, "")
	pod := runs(t, east, job)[0]
	foreign := map[string]map[string]string{
		"ours-node-0-0-alien":  {jobsetv1alpha2.JobSetNameKey: "ours", jobsetv1alpha2.JobSetUIDKey: "e7a1c7d8-0000-4000-8000-000000000000"},
		"ours-node-0-0-naked":  nil,
		"theirs-node-0-0-abcd": {jobsetv1alpha2.JobSetNameKey: "theirs", jobsetv1alpha2.JobSetUIDKey: "e7a1c7d8-0000-4000-8000-000000000001"},
	}
	for name, labels := range foreign {
		create(t, y.Workers[east], idle(name, labels))
	}
	listed := viewer.Kubectl(t.Context(), "get", "pods")
	contains(t, listed.Out, pod)
	for name := range foreign {
		if strings.Contains(listed.Out, name) {
			t.Errorf("%s is listed in\n%s", name, listed.Out)
		}
		for _, args := range [][]string{{"get", "pod", name}, {"logs", name}, {"describe", "pod", name}} {
			r := viewer.Kubectl(t.Context(), args...)
			check.Equal(t, 1, r.Code, "code of %v: %s", args, r)
			contains(t, r.Err, "not found")
		}
	}
}

// TestEventsOfTheCopy: what happens to the copy and its Jobs on the worker is told with the hub's job.
func TestEventsOfTheCopy(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "told"}, east, "")
	runs(t, east, job)
	copy := &trainer.TrainJob{}
	check.Must(t, y.Workers[east].Get(t.Context(), client.ObjectKeyFromObject(job), copy))
	event := func(name, kind string, object client.Object, apiVersion string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}, Reason: "TestReason", Message: "message of " + name, Type: corev1.EventTypeWarning,
			EventTime: metav1.NowMicro(), ReportingController: "test", ReportingInstance: "test", Action: "Test",
			InvolvedObject: corev1.ObjectReference{Kind: kind, APIVersion: apiVersion, Namespace: team, Name: object.GetName(), UID: object.GetUID()},
		}
	}
	create(t, y.Workers[east], event("of-the-copy", "TrainJob", copy, "trainer.kubeflow.org/v1alpha1"))
	stranger := copy.DeepCopy()
	stranger.UID = "e7a1c7d8-0000-4000-8000-000000000002"
	create(t, y.Workers[east], event("of-another", "TrainJob", stranger, "trainer.kubeflow.org/v1alpha1"))
	for _, args := range [][]string{{"describe", "trainjob", "told"}, {"events", "--for", "trainjob/told"}, {"get", "events"}} {
		r := viewer.Kubectl(t.Context(), args...)
		contains(t, r.Out, "message of of-the-copy", "Placed")
		if strings.Contains(r.Out, "message of of-another") {
			t.Errorf("%v shows an Event about another TrainJob:\n%s", args, r.Out)
		}
	}
	command := viewer.Command(t.Context(), "get", "events", "-w")
	var out lockedBuffer
	command.Stdout = &out
	check.Must(t, command.Start())
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}()
	create(t, y.Workers[east], event("later", "TrainJob", copy, "trainer.kubeflow.org/v1alpha1"))
	eventually(t, func() bool { return bytes.Contains(out.bytes(), []byte("message of later")) })
}

// TestLimits: one user cannot open more streams than one user may, and others can open some then.
func TestLimits(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "limited"}, east, "begun")
	pod := runs(t, east, job)[0]
	greedy, err := y.NewUser(t.Context(), team, "greta", "view")
	check.Must(t, err)
	config := configOf(t, greedy)
	config.QPS = -1
	typed, err := kubernetes.NewForConfig(config)
	check.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refused := 0
	for range 60 {
		stream, err := typed.CoreV1().Pods(team).GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
		switch {
		case err == nil:
			defer func() { _ = stream.Close() }()
		case apierrors.IsTooManyRequests(err):
			refused++
		default:
			t.Fatal(err)
		}
	}
	check.Equal(t, 10, refused, "refused streams")
	r := greedy.Kubectl(t.Context(), "logs", pod)
	check.Equal(t, 1, r.Code, "code: %s", r)
	contains(t, r.Err, "greta", "50 watches and streams open")
	check.Equal(t, "begun\n", viewer.Kubectl(t.Context(), "logs", pod).Out, "log of another user")
	cancel()
	eventually(t, func() bool { return greedy.Kubectl(t.Context(), "logs", pod).Code == 0 })
}

// TestRevokedToken: a token that is revoked opens nothing more. What is open goes on, as on an API server.
func TestRevokedToken(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "revoked"}, east, "begun")
	pod := runs(t, east, job)[0]
	atHub := runOnHub(t, "revoked-on-the-hub", "begun")
	u, err := y.NewUser(t.Context(), team, "rita", "edit")
	check.Must(t, err)
	check.Equal(t, 0, u.Kubectl(t.Context(), "logs", pod).Code, "code before")

	out, _ := follow(t, u, pod)
	command := u.Command(t.Context(), "exec", "-i", pod, "--", "cat")
	reader, writer := io.Pipe()
	var typed lockedBuffer
	command.Stdin, command.Stdout, command.Stderr = reader, &typed, &typed
	check.Must(t, command.Start())
	_, err = writer.Write([]byte("before\n"))
	check.Must(t, err)
	eventually(t, func() bool { return typed.String() == "before\n" })
	watch := u.Command(t.Context(), "get", "pods", "-w", "--no-headers", "--field-selector=metadata.name="+pod, "--output=jsonpath={.metadata.annotations['trainyard\\.dev/log']}/")
	var watched lockedBuffer
	watch.Stdout, watch.Stderr = &watched, &watched
	check.Must(t, watch.Start())
	eventually(t, func() bool { return watched.String() == "begun/" })
	// The same at the API server itself.
	config := rest.AnonymousClientConfig(y.Yard.Hub.Config)
	config.BearerToken = u.Token
	direct, err := kubernetes.NewForConfig(config)
	check.Must(t, err)
	stream, err := direct.CoreV1().Pods(team).GetLogs(atHub, &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	check.Must(t, err)
	defer func() { _ = stream.Close() }()
	lines := bufio.NewReader(stream)
	line, err := lines.ReadString('\n')
	check.Must(t, err)
	check.Equal(t, "begun\n", line, "log at the API server")

	check.Must(t, y.Hub.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "rita"}}))
	for _, args := range [][]string{{"logs", pod}, {"exec", pod, "--", "true"}, {"get", "pods"}, {"get", "pods", "-w"}} {
		eventually(t, func() bool {
			r := u.Kubectl(t.Context(), args...)
			return r.Code == 1 && strings.Contains(r.Err, "You must be logged in to the server")
		})
	}

	prints(t, y.Workers[east], team, pod, "begun\nafter")
	eventually(t, func() bool { return out.String() == "begun\nafter\n" })
	eventually(t, func() bool { return watched.String() == "begun/begun\nafter/" })
	_, err = writer.Write([]byte("after\n"))
	check.Must(t, err)
	eventually(t, func() bool { return typed.String() == "before\nafter\n" })
	check.Must(t, writer.Close())
	check.Must(t, command.Wait())
	prints(t, y.Hub, team, atHub, "begun\nafter")
	line, err = lines.ReadString('\n')
	check.Must(t, err)
	check.Equal(t, "after\n", line, "log at the API server")
}

// TestOversizedHeaders: headers larger than any client's are refused before they are read. They are not so large that the
// client could not write them before the server ends the connection. cmd/manager.TestGatewayBoundsHeaders has others.
func TestOversizedHeaders(t *testing.T) {
	t.Parallel()
	client := &http.Client{Transport: insecure(), Timeout: 30 * time.Second}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+y.GatewayAddress()+"/api", nil)
	check.Must(t, err)
	r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 72<<10))
	res, err := client.Do(r)
	check.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	check.Equal(t, http.StatusRequestHeaderFieldsTooLarge, res.StatusCode, "code")
}

// TestFinishedJob: the log of a job that has ended is there as long as its copy is.
func TestFinishedJob(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "finished", RunFor: "1s"}, west, "result")
	var pod string
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, job)
		g.Expect(d.IsFinished()).To(gomega.BeTrue())
		pods := y.PodsOf(g, west, job)
		g.Expect(pods).To(gomega.HaveLen(1))
		pod = pods[0].Name
	})
	check.Equal(t, "result\n", viewer.Kubectl(t.Context(), "logs", pod).Out, "log")
	contains(t, strings.Join(strings.Fields(viewer.Kubectl(t.Context(), "get", "pods").Out), " "), pod+" 0/1 Completed")
}
