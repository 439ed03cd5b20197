// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// plugin runs the kubectl plugin as the user, with the kubeconfig of the hub's admin and the user's token.
func (u *user) plugin(ctx context.Context, args ...string) *exec.Cmd {
	binary, err := filepath.Abs("../../../bin/kubectl-trainyard")
	if err != nil {
		panic(err)
	}
	return exec.CommandContext(ctx, binary, append([]string{"--kubeconfig", y.Yard.Hub.KubeconfigPath, "--token", u.token, "-n", team}, args...)...)
}

// printed is written by a command and read by a test.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// TestPlugin: with the hub's kubeconfig and the rights of a viewer there, the plugin makes a kubeconfig that leads through
// the gateway, and follows a log of a job that moves to another worker.
func TestPlugin(t *testing.T) {
	published := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "trainyard-system", Name: "trainyard-gateway"},
		Data:       map[string]string{"url": "https://" + y.GatewayAddress(), "ca.crt": string(y.Gateway.CABundle)},
	}
	check.Must(t, y.Hub.Create(t.Context(), published))
	t.Cleanup(func() { check.Must(t, y.Hub.Delete(context.Background(), published)) })
	check.Must(t, y.Yard.Hub.ApplyFiles(t.Context(), "../../../config/gateway/readers.yaml"))
	job := submit(t, yard.Job{Name: "plugged"}, "", "hello")
	var d v1alpha1.Dispatch
	eventually(t, func() bool {
		return y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), &d) == nil && d.Spec.Cluster != ""
	})
	pods := runs(t, string(d.Spec.Cluster), job)

	made := run(viewer.plugin(t.Context(), "kubeconfig"))
	check.Equal(t, 0, made.code, "kubeconfig: %s", made)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	check.Must(t, os.WriteFile(path, []byte(made.out), 0o600))
	through := *viewer
	through.kubeconfig = path
	contains(t, through.kubectl(t.Context(), "get", "pods").out, pods...)

	log := run(viewer.plugin(t.Context(), "logs", "plugged"))
	check.Equal(t, "hello\n", log.out, "log: %s", log)

	var out, errs printed
	follow := viewer.plugin(t.Context(), "logs", "plugged", "-f")
	follow.Stdout, follow.Stderr = &out, &errs
	check.Must(t, follow.Start())
	eventually(t, func() bool { return out.String() == "hello\n" })
	check.Must(t, y.Hub.Delete(t.Context(), &d)) // This evicts the job.
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s\npods: %s", &out, &errs, viewer.kubectl(context.Background(), "get", "pods", "-o", "wide", "--show-labels"))
		}
	})
	eventually(t, func() bool { return out.String() == "hello\nhello\n" })
	contains(t, errs.String(), `TrainJob "plugged" was started again on worker`)
	check.Must(t, y.Hub.Delete(t.Context(), job))
	err := follow.Wait()
	if err != nil || !strings.Contains(errs.String(), `TrainJob "plugged" was deleted`) {
		t.Errorf("following ends with %v:\n%s", err, &errs)
	}
}
