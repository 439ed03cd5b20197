// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/test/check"
)

// TestExecIsLimitedForTheHub: config/worker-exec limits the hub's account to namespaces that Trainyard has made and to
// those that an admin has labelled, for commands, attaching and ports. It limits nobody else, whatever is similar in the
// names.
func TestExecIsLimitedForTheHub(t *testing.T) {
	e := env(t)
	check.Must(t, e.cluster.ApplyFiles(t.Context(), "../config/worker-exec/cluster_role.yaml",
		"../config/worker-exec/cluster_role_binding.yaml", "../config/worker-exec/namespaces.yaml"))
	labelled := func(key, value string) string {
		return e.namespace(t, func(ns *corev1.Namespace) { ns.Labels = map[string]string{key: value} })
	}
	plain, refused := e.namespace(t), labelled("trainyard.dev/exec", "false")
	made, willed := labelled("trainyard.dev/propagated-by", "hub-1"), labelled("trainyard.dev/exec", "true")
	others := []string{
		aUser, "trainyard-hub", "system:serviceaccount:vision:trainyard-hub", "system:serviceaccount:trainyard-system:trainyard-hub-2", theAgent,
	}
	role := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "others-exec"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "trainyard-hub-exec"},
	}
	for _, who := range others {
		role.Subjects = append(role.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: who})
	}
	e.create(t, role)
	for _, ns := range []string{plain, refused, made, willed} {
		e.create(t, &corev1.Pod{ // It is on no node. The API server says so to who may reach it.
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pod"},
			Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "node", Image: "image"}}},
		})
	}
	eventually(t, "policy to be in force, and rights", func(g gomega.Gomega) {
		g.Expect(e.connect(t, theHub, plain, "exec")).To(gomega.MatchError(gomega.ContainSubstring("was not made by Trainyard")))
		for _, who := range others {
			g.Expect(apierrors.IsForbidden(e.connect(t, who, plain, "exec"))).To(gomega.BeFalse())
		}
	})

	for subresource := range connections {
		for _, ns := range []string{plain, refused} {
			err := e.connect(t, theHub, ns, subresource)
			words := "namespace " + ns + " was not made by Trainyard: to permit commands in pods there, an admin of the worker labels it trainyard.dev/exec=true"
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
				t.Errorf("the hub's %s in %s: the answer is %v, and should be a refusal with %q", subresource, ns, err, words)
			}
		}
		for _, ns := range []string{made, willed} {
			checkPermitted(t, "the hub's "+subresource+" in "+ns, e.connect(t, theHub, ns, subresource))
		}
		for _, who := range others {
			for _, ns := range []string{plain, refused, made, willed} {
				checkPermitted(t, who+"'s "+subresource+" in "+ns, e.connect(t, who, ns, subresource))
			}
		}
	}
}

// connections are the ways into a pod.
var connections = map[string]runtime.Object{
	"exec":        &corev1.PodExecOptions{Command: []string{"true"}, Stdout: true},
	"attach":      &corev1.PodAttachOptions{Stdout: true},
	"portforward": &corev1.PodPortForwardOptions{Ports: []int32{6006}},
}

// connect asks for a connection to a pod, as who.
func (e *environment) connect(t *testing.T, who, namespace, subresource string) error {
	t.Helper()
	config := rest.CopyConfig(e.cluster.Config)
	config.Impersonate.UserName = who
	c, err := kubernetes.NewForConfig(config)
	check.Must(t, err)
	return c.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("pod").SubResource(subresource).
		VersionedParams(connections[subresource], scheme.ParameterCodec).Do(t.Context()).Error()
}

// checkPermitted checks that nothing but the missing node is in the way.
func checkPermitted(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsBadRequest(err) || err.Error() != "pod pod does not have a host assigned" {
		t.Errorf("%s: the answer is %v, and should be that the pod has no node", what, err)
	}
}
