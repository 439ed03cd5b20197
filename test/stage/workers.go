// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// AddNodes creates two nodes of eight GPUs, which have more resources too.
func (s *Server) AddNodes(ctx context.Context, more corev1.ResourceList) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("96"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods: resource.MustParse("110"), GPU: resource.MustParse("8"),
	}
	maps.Copy(capacity, more)
	for i := range 2 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
		if err := s.Admin.Create(ctx, node); err != nil {
			return err
		}
		node.Status.Capacity, node.Status.Allocatable = capacity, capacity
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if err := s.Admin.Status().Update(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// Register registers all workers for all tests, as workers that are Ready. Each has a label region.
func (s *Stage) Register(ctx context.Context) error {
	for _, server := range s.Workers {
		if err := s.register(ctx, server.Name(), ready(v1alpha1.ReasonConnected, time.Time{})); err != nil {
			return err
		}
	}
	return nil
}

// register creates a WorkerCluster with its status.
func (s *Stage) register(ctx context.Context, name v1alpha1.ClusterName, changes ...func(*v1alpha1.WorkerCluster)) error {
	worker := &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: string(name), Labels: map[string]string{"region": string(name)}},
		Spec:       v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{KubeconfigPath: "/nowhere"}},
	}
	if server := s.Worker(name); server != nil {
		worker.Status.ClusterID = server.ID
	}
	for _, change := range changes {
		change(worker)
	}
	status := worker.Status
	if err := s.Hub.Admin.Create(ctx, worker); err != nil {
		return err
	}
	worker.Status = status
	return s.Hub.Admin.Status().Update(ctx, worker)
}

// Register registers a worker that is Ready, changed by the given functions. It is deleted when the test ends, so that
// other tests do not count it.
func (s *Scene) Register(t testing.TB, name v1alpha1.ClusterName, changes ...func(*v1alpha1.WorkerCluster)) v1alpha1.ClusterName {
	t.Helper()
	changes = append([]func(*v1alpha1.WorkerCluster){s.Ready(v1alpha1.ReasonConnected)}, changes...)
	check.Must(t, s.register(t.Context(), name, changes...))
	t.Cleanup(func() { s.Unregister(t, name) })
	return name
}

// FromSecret makes a worker have its credentials in the Secret of its name, and no status yet.
func FromSecret(worker *v1alpha1.WorkerCluster) {
	worker.Spec.Connection = v1alpha1.Connection{KubeconfigSecretRef: &v1alpha1.SecretReference{Name: worker.Name}}
	worker.Status = v1alpha1.WorkerClusterStatus{}
}

// WriteKubeconfig writes a Secret for WorkerClusters, as kubectl trainyard join does.
func (s *Stage) WriteKubeconfig(t testing.TB, name string, kubeconfig []byte) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: SystemNamespace, Name: name}, Data: map[string][]byte{kubeconfigs.SecretKey: kubeconfig},
	}
	err := s.Hub.Admin.Create(t.Context(), secret)
	if apierrors.IsAlreadyExists(err) {
		err = s.Hub.Admin.Update(t.Context(), secret)
	}
	check.Must(t, err)
}

// Unregister deletes a WorkerCluster, if it exists.
func (s *Scene) Unregister(t testing.TB, name v1alpha1.ClusterName) {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: string(name)}}
	check.Must(t, client.IgnoreNotFound(s.Hub.Admin.Delete(context.WithoutCancel(t.Context()), worker)))
}

// Ready sets the Ready condition of a worker, as workercluster does. It is True for the reason Connected.
func (s *Scene) Ready(reason string) func(*v1alpha1.WorkerCluster) {
	return ready(reason, s.Clock.Now())
}

func ready(reason string, since time.Time) func(*v1alpha1.WorkerCluster) {
	value := metav1.ConditionFalse
	if reason == v1alpha1.ReasonConnected {
		value = metav1.ConditionTrue
	}
	return func(worker *v1alpha1.WorkerCluster) {
		meta.SetStatusCondition(&worker.Status.Conditions, metav1.Condition{
			Type: v1alpha1.WorkerClusterReady, Status: value, Reason: reason, LastTransitionTime: metav1.NewTime(since),
		})
	}
}

// WorkerCluster reads a WorkerCluster, which must exist.
func (s *Scene) WorkerCluster(t testing.TB, name v1alpha1.ClusterName) *v1alpha1.WorkerCluster {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{}
	check.Must(t, s.Hub.Admin.Get(context.WithoutCancel(t.Context()), client.ObjectKey{Name: string(name)}, worker))
	return worker
}

// ChangeWorker changes metadata, spec and status of a WorkerCluster. It tries again after a conflict.
func (s *Scene) ChangeWorker(t testing.TB, name v1alpha1.ClusterName, changes ...func(*v1alpha1.WorkerCluster)) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	check.Must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		worker := s.WorkerCluster(t, name)
		for _, change := range changes {
			change(worker)
		}
		status := worker.Status
		if err := s.Hub.Admin.Update(ctx, worker); err != nil {
			return err
		}
		worker.Status = status
		return s.Hub.Admin.Status().Update(ctx, worker)
	}))
}

// Account makes a service account with these rights in the namespace default, and returns credentials for it.
func Account(t testing.TB, cluster *clusters.Cluster, name string, rules ...rbacv1.PolicyRule) remote.Credentials {
	t.Helper()
	admin, err := kubernetes.NewForConfig(cluster.Config)
	check.Must(t, err)
	accounts := admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	_, err = accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	check.Must(t, err)
	Grant(t, cluster, name, name, rules...)
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	check.Must(t, err)
	return remote.Credentials{Fingerprint: name, Config: &rest.Config{
		Host: cluster.Config.Host, BearerToken: token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: cluster.Config.CAData, ServerName: cluster.Config.ServerName},
	}}
}

// Grant gives rights to an Account, in a role of the given name.
func Grant(t testing.TB, cluster *clusters.Cluster, role, account string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	admin, err := kubernetes.NewForConfig(cluster.Config)
	check.Must(t, err)
	_, err = admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules,
	}, metav1.CreateOptions{})
	check.Must(t, err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: account}},
	}, metav1.CreateOptions{})
	check.Must(t, err)
}
