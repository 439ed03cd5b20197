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
)

var (
	y = yard.Suite{
		Options: yard.Options{
			Workers:   []yard.Worker{worker(east), worker(west)},
			AgentArgs: []string{"--unschedulable-after=3s"},
			Progress:  yard.Print, HubWebhooks: true,
		},
		Timeout: 100 * time.Second,
		Poll:    100 * time.Millisecond,
	}
	// user is the kubeconfig of somebody who may view the team's namespace on the hub.
	user string
)

func worker(name string) yard.Worker {
	return yard.Worker{
		Name: name, Labels: map[string]string{"region": name}, Nodes: []clusters.NodeShape{yard.GPUNodes(name, 2, 8, "NVIDIA-H100")},
		Failover: v1alpha1.WorkerFailover{GracePeriod: &metav1.Duration{Duration: 5 * time.Second}},
	}
}

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	if stop, err = y.Start(ctx); err != nil {
		return stop, err
	}
	if user, err = viewer(ctx); err != nil {
		return stop, err
	}
	return stop, noGPUs(ctx, y.Workers[west])
}

// viewer makes the team's namespace, and writes a kubeconfig for somebody with the role view there.
func viewer(ctx context.Context) (string, error) {
	if err := y.Yard.Hub.ApplyKustomization(ctx, "../../../config/users"); err != nil {
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
		if err := y.Hub.Create(ctx, object); err != nil {
			return "", err
		}
	}
	kubeconfig, err := y.Yard.Hub.ServiceAccountKubeconfig(ctx, account, time.Hour)
	if err != nil {
		return "", err
	}
	path := filepath.Join(y.Yard.Hub.Dir, "viewer.kubeconfig")
	return path, os.WriteFile(path, kubeconfig, 0o600)
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
