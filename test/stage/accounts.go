// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

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
