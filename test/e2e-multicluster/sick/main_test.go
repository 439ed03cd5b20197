// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sick tests what a user of the hub, who has no right on any worker, learns of jobs that do not run or cannot
// run, with whole processes: a hub with webhooks and two workers.
package sick

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	east, west = "east", "west"
	team       = "vision"

	timeout = 100 * time.Second
	poll    = 100 * time.Millisecond
)

// y is the yard of all tests, hub and workers its clients. user is the kubeconfig of somebody who may view the team's
// namespace on the hub.
var (
	y       *yard.Yard
	hub     client.WithWatch
	workers map[string]client.WithWatch
	user    string
)

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	worker := func(name string) yard.Worker {
		return yard.Worker{
			Name: name, Labels: map[string]string{"region": name}, Nodes: []clusters.NodeShape{yard.GPUNodes(name, 2, 8, "NVIDIA-H100")},
			Failover: v1alpha1.WorkerFailover{GracePeriod: &metav1.Duration{Duration: 5 * time.Second}},
		}
	}
	y, err = yard.Start(ctx, yard.Options{
		Workers:   []yard.Worker{worker(east), worker(west)},
		AgentArgs: []string{"--unschedulable-after=3s"},
		Progress:  yard.Print, HubWebhooks: true,
	})
	if err != nil {
		return nil, err
	}
	if hub, workers, err = y.Clients(); err != nil {
		return y.Stop, err
	}
	dir, err := os.MkdirTemp("", "trainyard-sick-")
	if err != nil {
		return y.Stop, err
	}
	stop = func() error {
		_ = os.RemoveAll(dir)
		return y.Stop()
	}
	if user, err = viewer(ctx, dir); err != nil {
		return stop, err
	}
	if err := noGPUs(ctx, workers[west]); err != nil {
		return stop, err
	}
	return stop, yard.InstallRuntimes(ctx, y.Hub)
}

// viewer makes the team's namespace, and writes a kubeconfig for somebody with the role view there.
func viewer(ctx context.Context, dir string) (string, error) {
	if _, err := y.Hub.Kubectl(ctx, "apply", "--server-side", "-k", "../../../config/users"); err != nil {
		return "", err
	}
	account := types.NamespacedName{Namespace: team, Name: "ada"}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: account.Name}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: account.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: team, Name: account.Name}},
		},
	} {
		if err := hub.Create(ctx, object); err != nil {
			return "", err
		}
	}
	kubeconfig, err := y.Hub.ServiceAccountKubeconfig(ctx, account, time.Hour)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, kubeconfig, 0o600)
}

func eventually(t *testing.T, check func(g gomega.Gomega)) {
	t.Helper()
	gomega.NewWithT(t).Eventually(check).WithTimeout(timeout).WithPolling(poll).Should(gomega.Succeed())
}

// noGPUs forbids GPUs in the team's namespace of a worker.
func noGPUs(ctx context.Context, worker client.Client) error {
	if err := worker.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}); err != nil {
		return err
	}
	return worker.Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "no-gpus"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse("0")}},
	})
}
