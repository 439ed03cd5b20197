// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// plugin runs the kubectl plugin as a user, with the kubeconfig of the hub's admin and the user's token.
func plugin(ctx context.Context, u *yard.User, args ...string) *exec.Cmd {
	return y.PluginCommand(ctx, append([]string{"--kubeconfig", y.Yard.Hub.KubeconfigPath, "--token", u.Token, "-n", team}, args...)...)
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
	at := placeOf(t, job)
	pods := runs(t, at, job)

	made := yard.ResultOf(plugin(t.Context(), viewer, "kubeconfig"))
	check.Equal(t, 0, made.Code, "kubeconfig: %s", made)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	check.Must(t, os.WriteFile(path, []byte(made.Out), 0o600))
	through := *viewer
	through.Kubeconfig = path
	contains(t, through.Kubectl(t.Context(), "get", "pods").Out, pods...)

	log := yard.ResultOf(plugin(t.Context(), viewer, "logs", "plugged"))
	check.Equal(t, "hello\n", log.Out, "log: %s", log)

	var out, errs lockedBuffer
	follow := plugin(t.Context(), viewer, "logs", "plugged", "-f")
	follow.Stdout, follow.Stderr = &out, &errs
	check.Must(t, follow.Start())
	eventually(t, func() bool { return out.String() == "hello\n" })
	check.Must(t, y.Hub.Delete(t.Context(), y.DispatchOf(gomega.NewWithT(t), job))) // This evicts the job.
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s\npods: %s", &out, &errs, viewer.Kubectl(context.Background(), "get", "pods", "-o", "wide", "--show-labels"))
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
