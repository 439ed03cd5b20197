// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package training

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	team = "vision"
	// program is what the image has.
	program = "/toy-train"
)

// A user who has a role in one namespace of the hub, and comes from outside of the cluster through the Service of the
// gateway, reads real logs and executes a command in a real container. The worker is lost: the log that is followed ends
// with an error, and the worker is named. It comes back: the log is there again.
func TestGateway(t *testing.T) {
	installRuntime(t)
	user := newUser(t)
	y.Cordon(t, east, true)
	job := submit(t, team, "watched")
	t.Cleanup(func() { check.Must(t, y.Hub.Delete(context.Background(), job)) })
	placedOn(t, job, west)
	nodesOf(t, west, job)
	pod := firstPod(t, user)

	y.Eventually(t, func(g gomega.Gomega) {
		log := user.run(t, "logs", pod)
		g.Expect(log.Code).To(gomega.Equal(0), "%s", log)
		g.Expect(last(log.Out, checkpointLine)).To(gomega.BeNumerically(">=", 20), "%s", log)
	})
	if described := user.run(t, "describe", "pod", pod); described.Code != 0 || !strings.Contains(described.Out, "Pulled") {
		t.Errorf("kubectl describe does not show the Events of the pod: %s", described)
	}
	// The image has one program. It says how it is used, and what is wrong with a flag.
	if help := user.run(t, "exec", pod, "--", program, "-h"); help.Code != 0 || !strings.Contains(help.Err, "-checkpoint-dir") {
		t.Errorf("a command in the container: %s", help)
	}
	if wrong := user.run(t, "exec", pod, "--", program, "-no-such-flag"); wrong.Code != 2 || !strings.Contains(wrong.Err, "no-such-flag") {
		t.Errorf("a command that fails with code 2: %s", wrong)
	}
	loseWorker(t, user, pod)
	y.Eventually(t, func(g gomega.Gomega) {
		log := user.run(t, "logs", pod)
		g.Expect(log.Code).To(gomega.Equal(0), "%s", log)
	})
}

// loseWorker stops the API server of the worker while the user follows a log, and starts it again at the end.
func loseWorker(t *testing.T, user person, pod string) {
	t.Helper()
	follow := user.command(t, "logs", "-f", "--tail=1", pod)
	log, err := follow.StdoutPipe()
	check.Must(t, err)
	var words strings.Builder
	follow.Stderr = &words
	check.Must(t, follow.Start())
	lines := bufio.NewScanner(log)
	if !lines.Scan() {
		t.Fatalf("the log that is followed has no line: %s", &words)
	}
	cluster := y.Yard.Workers[west]
	check.Must(t, cluster.KillAPIServer())
	defer func() { check.Must(t, cluster.StartAPIServer(t.Context())) }()
	for lines.Scan() { // until the stream ends
		continue
	}
	if err := follow.Wait(); err == nil {
		t.Error("kubectl logs -f ended as if the log was complete")
	}
	t.Logf("kubectl logs -f says: %s", &words)
	y.Eventually(t, func(g gomega.Gomega) {
		list := user.run(t, "get", "pods")
		g.Expect(list.Code).To(gomega.Equal(0), "%s", list)
		g.Expect(list.Err).To(gomega.ContainSubstring(west), "the warning does not name the worker: %s", list)
		log := user.run(t, "logs", pod)
		g.Expect(log.Code).To(gomega.Equal(1), "%s", log)
		g.Expect(log.Err).To(gomega.ContainSubstring(west), "the error does not name the worker: %s", log)
		t.Logf("kubectl get pods says: %s\nkubectl logs says: %s", list, log)
	})
}

// person is the path of a kubeconfig of a user.
type person string

func (p person) command(t *testing.T, args ...string) *exec.Cmd {
	return y.KubectlCommand(t.Context(), string(p), args...)
}

func (p person) run(t *testing.T, args ...string) yard.Result {
	return yard.ResultOf(p.command(t, args...))
}

// newUser makes a user as docs/gateway.md says, with the Service at a port of the hub's nodes, and returns that user.
func newUser(t *testing.T) person {
	t.Helper()
	kubectl := func(args ...string) string {
		output, err := y.Yard.Hub.Kubectl(t.Context(), args...)
		check.Must(t, err)
		return strings.TrimSpace(string(output))
	}
	kubectl("create", "namespace", team)
	kubectl("--namespace="+team, "create", "serviceaccount", "researcher")
	kubectl("--namespace="+team, "create", "rolebinding", "researcher", "--clusterrole=edit", "--serviceaccount="+team+":researcher")
	kubectl("--namespace=trainyard-system", "patch", "service", "trainyard-gateway", "--patch", `{"spec": {"type": "NodePort"}}`)
	var service corev1.Service
	check.Must(t, y.Hub.Get(t.Context(), types.NamespacedName{Namespace: "trainyard-system", Name: "trainyard-gateway"}, &service))
	token := kubectl("--namespace="+team, "create", "token", "researcher", "--duration=8h")
	config, err := y.Plugin(t.Context(), "kubeconfig", "--kubeconfig", y.Yard.Hub.KubeconfigPath, "--namespace", team, "--token", token,
		"--url", fmt.Sprintf("https://%s:%d", hubNode(t), service.Spec.Ports[0].NodePort),
		"--tls-server-name", "trainyard-gateway.trainyard-system.svc")
	check.Must(t, err)
	path := filepath.Join(t.TempDir(), "hub.kubeconfig")
	check.Must(t, os.WriteFile(path, config, 0o600))
	return person(path)
}

// hubNode returns the address of a node of the hub.
func hubNode(t *testing.T) string {
	t.Helper()
	var nodes corev1.NodeList
	check.Must(t, y.Hub.List(t.Context(), &nodes))
	for _, address := range nodes.Items[0].Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	t.Fatalf("node %q has no address: %v", nodes.Items[0].Name, nodes.Items[0].Status.Addresses)
	return ""
}

// firstPod returns the name of the pod of rank 0, as the user sees it.
func firstPod(t *testing.T, user person) string {
	t.Helper()
	list := user.run(t, "get", "pods", "-l", "batch.kubernetes.io/job-completion-index=0", "-o", "name")
	names := strings.Fields(list.Out)
	if list.Code != 0 || len(names) != 1 {
		t.Fatalf("want one pod of rank 0: %s", list)
	}
	return strings.TrimPrefix(names[0], "pod/")
}
