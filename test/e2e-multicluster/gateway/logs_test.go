// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// TestLogs: logs of a pod on a worker, with the flags of kubectl.
func TestLogs(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "printed", Nodes: 2}, east, "one\ntwo\nthree")
	pods := runs(t, east, job)
	for name, tc := range map[string]struct {
		args []string
		want string
		code int
	}{
		"Whole":     {args: []string{"logs", pods[0]}, want: "one\ntwo\nthree\n"},
		"Tail":      {args: []string{"logs", pods[0], "--tail=1"}, want: "three\n"},
		"Container": {args: []string{"logs", pods[0], "-c", "node"}, want: "one\ntwo\nthree\n"},
		"Labels":    {args: []string{"logs", "-l", "jobset.sigs.k8s.io/jobset-name=printed", "--tail=1"}, want: "three\nthree\n"},
		"Previous":  {args: []string{"logs", pods[0], "--previous"}, code: 1},
		"Unknown":   {args: []string{"logs", pods[0], "-c", "nobody"}, code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := viewer.Kubectl(t.Context(), tc.args...)
			check.Equal(t, tc.code, r.Code, "code of %v: %s", tc.args, r)
			check.Equal(t, tc.want, r.Out, "output of %v", tc.args)
		})
	}
}

// follow follows the log of a pod that has printed "begun".
func follow(t *testing.T, u *yard.User, pod string) (out *lockedBuffer, ended <-chan int) {
	t.Helper()
	command := u.Command(t.Context(), "logs", "-f", pod)
	out = &lockedBuffer{}
	command.Stdout, command.Stderr = out, out
	check.Must(t, command.Start())
	end := make(chan int, 1)
	go func() {
		_ = command.Wait() // The exit code says it.
		end <- command.ProcessState.ExitCode()
	}()
	eventually(t, func() bool { return bytes.Contains(out.bytes(), []byte("begun")) })
	return out, end
}

func codeOf(t *testing.T, ended <-chan int) int {
	t.Helper()
	select {
	case code := <-ended:
		return code
	case <-time.After(y.Timeout):
		t.Fatal("kubectl logs -f has not ended")
		return 0
	}
}

// TestFollowedToTheEnd: kubectl logs -f of a pod that ends by itself ends without an error.
func TestFollowedToTheEnd(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "followed", RunFor: "4s"}, east, "begun")
	out, ended := follow(t, viewer, runs(t, east, job)[0])
	if code := codeOf(t, ended); code != 0 {
		t.Errorf("kubectl logs -f has ended with %d: %s", code, out.bytes())
	}
}

// TestFollowedJobMoves: kubectl logs -f of a job that is moved ends with an error, and the next one finds the new pod.
func TestFollowedJobMoves(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "moves"}, "", "begun")
	at := placeOf(t, job)
	out, ended := follow(t, viewer, runs(t, at, job)[0])
	d := y.DispatchOf(gomega.NewWithT(t), job)
	check.Must(t, y.Hub.Delete(t.Context(), d)) // It evicts the job.
	if code := codeOf(t, ended); code != 1 {
		t.Errorf("kubectl logs -f has ended with %d: %s", code, out.bytes())
	}
	y.Eventually(t, func(g gomega.Gomega) {
		now := y.DispatchOf(g, job)
		g.Expect(now.UID).NotTo(gomega.Equal(d.UID))
		g.Expect(now.Spec.Cluster).NotTo(gomega.BeEmpty())
	})
	next := runs(t, placeOf(t, job), job)[0]
	eventually(t, func() bool { return viewer.Kubectl(t.Context(), "logs", next).Out == "begun\n" })
}

func placeOf(t *testing.T, job *trainer.TrainJob) (at string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		d := &v1alpha1.Dispatch{}
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
		g.Expect(d.Spec.Cluster).NotTo(gomega.BeEmpty())
		at = string(d.Spec.Cluster)
	})
	return at
}

// TestFaultWorkerHangs: a worker that does not answer is named in time, and keeps nobody from the others.
func TestFaultWorkerHangs(t *testing.T) {
	there := submit(t, yard.Job{Name: "there"}, east, "")
	gone := submit(t, yard.Job{Name: "gone"}, west, "begun")
	pod, silent := runs(t, east, there)[0], runs(t, west, gone)[0]
	out, ended := follow(t, viewer, silent)
	server := y.Yard.Workers[west].Process("kube-apiserver")
	check.Must(t, server.Signal(syscall.SIGSTOP))
	defer func() { check.Must(t, server.Signal(syscall.SIGCONT)) }()

	r := viewer.Kubectl(t.Context(), "get", "pods")
	check.Equal(t, 0, r.Code, "code: %s", r)
	contains(t, r.Out, pod)
	contains(t, r.Err, `Warning: worker "west" does not answer`)
	if strings.Contains(r.Out, silent) {
		t.Errorf("a pod of the silent worker is listed: %s", r.Out)
	}
	begun := time.Now()
	r = viewer.Kubectl(t.Context(), "logs", silent)
	check.Equal(t, 1, r.Code, "code: %s", r)
	contains(t, r.Err, `worker "west" does not answer`)
	t.Logf("kubectl logs after %s: %s", time.Since(begun), r)

	informer := informersOf(t, configOf(t, viewer))["Typed"]
	go informer.Run(t.Context().Done())
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !toolscache.WaitForCacheSync(within.Done(), informer.HasSynced) {
		t.Error("an informer waits for the silent worker")
	}
	if code := codeOf(t, ended); code != 1 { // The worker is lost.
		t.Errorf("kubectl logs -f has ended with %d: %s", code, out.bytes())
	}
	check.Must(t, server.Signal(syscall.SIGCONT))
	eventually(t, func() bool {
		_, has, _ := informer.GetStore().GetByKey(team + "/" + silent)
		return has
	})
}
