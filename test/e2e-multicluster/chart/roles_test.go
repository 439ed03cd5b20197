// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// people have roles in the namespace default, which has a job that waits. There is no controller that would delete
// namespaces of a test.
const people = `
apiVersion: trainyard.dev/v1alpha1
kind: Dispatch
metadata: {name: llm, namespace: default}
spec: {trainJob: {name: llm, uid: 8f1b}, attempt: 0}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewers, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editors, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: editor}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: admins, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: owner}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operators}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: trainyard-operator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}]
`

// testRoles checks the roles for people with requests in their names.
func testRoles(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "people.yaml")
	check.Must(t, os.WriteFile(manifest, []byte(people), 0o600))
	kubectl(t, "apply", "-f", manifest)
	defer kubectl(t, "delete", "-f", manifest)
	const status = `{"status": {"explanation": [` +
		`{"cluster": "east", "reason": "InsufficientResources", "message": "lacks 8 GPUs"}]}}`
	kubectl(t, "patch", "dispatch", "llm", "--namespace", "default", "--subresource=status", "--type=merge", "--patch", status)
	t.Run("Why", testViewer)
	admin, err := yard.NewClient(cluster)
	check.Must(t, err)
	for _, user := range []string{"viewer", "editor", "owner"} {
		t.Run(user, func(t *testing.T) {
			expectRights(t, admin, user, "default", map[string]string{
				"trainyard.dev/dispatches": read, "trainyard.dev/dispatches/status": "",
				"trainer.kubeflow.org/trainjobs": read, "trainer.kubeflow.org/trainingruntimes": read,
				"trainyard.dev/workerclusters": "", "trainyard.dev/dispatchpolicies": "", "trainyard.dev/tombstones": "",
			})
			expectRights(t, admin, user, "kube-public", map[string]string{"trainyard.dev/dispatches": ""})
		})
	}
	t.Run("operator", func(t *testing.T) { testOperator(t, admin) })
}

// read is what informers need.
const read = "get list watch"

// testViewer checks that a user of the role view reads why a job waits, and writes nothing.
func testViewer(t *testing.T) {
	const why = "jsonpath={.status.explanation[*].message}"
	eventually(t, "the aggregated role", func(g gomega.Gomega) {
		got, err := cluster.Kubectl(t.Context(), "get", "dispatch", "llm", "--namespace", "default", "--as", "viewer", "-o", why)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(string(got)).To(gomega.Equal("lacks 8 GPUs"))
	})
	for _, command := range []string{
		"get dispatches --all-namespaces",
		"delete dispatch llm --namespace default",
		"label dispatch llm --namespace default a=b",
		`patch dispatch llm --namespace default --subresource=status --type=merge --patch {"status":{"reason":"Mine"}}`,
		"create --raw /apis/trainyard.dev/v1alpha1/namespaces/default/dispatches -f -",
	} {
		_, err := cluster.Kubectl(t.Context(), append(strings.Fields(command), "--as", "viewer")...)
		if err == nil || !strings.Contains(err.Error(), "orbidden") {
			t.Errorf("kubectl %s: got error %v, want Forbidden", command, err)
		}
	}
}

// testOperator asks the API server for every verb on every kind. The commands of the plugin are tried with this role by
// the tests of the plugin.
func testOperator(t *testing.T, admin client.Client) {
	expectRights(t, admin, "operator", "default", map[string]string{
		"trainyard.dev/workerclusters":                 read + " patch",
		"trainyard.dev/dispatches":                     read,
		"trainyard.dev/tombstones":                     read,
		"trainyard.dev/dispatchpolicies":               read + " create update patch delete",
		"trainyard.dev/workerclusters/status":          "",
		"trainyard.dev/dispatches/status":              "",
		"trainyard.dev/dispatchpolicies/status":        "",
		"trainer.kubeflow.org/trainjobs":               "get list",
		"trainer.kubeflow.org/trainingruntimes":        "get list",
		"trainer.kubeflow.org/clustertrainingruntimes": "get list",
		"scheduling.k8s.io/priorityclasses":            "list",
		"/namespaces":                                  "get",
		"/secrets":                                     "",
		"/pods":                                        "",
		"/serviceaccounts/token":                       "",
		"coordination.k8s.io/leases":                   "",
		"rbac.authorization.k8s.io/clusterroles":       "",
	})
}

// expectRights checks that a user has exactly these rights in a namespace: verbs by group/resource/subresource. A
// controller writes aggregated roles a moment after the roles that they are made of.
func expectRights(t *testing.T, admin client.Client, user, namespace string, rights map[string]string) {
	t.Helper()
	for resource, verbs := range rights {
		group, name, _ := strings.Cut(resource, "/")
		name, subresource, _ := strings.Cut(name, "/")
		for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
			want := slices.Contains(strings.Fields(verbs), verb)
			eventually(t, verb+" of "+resource+" by "+user+" in "+namespace, func(g gomega.Gomega) {
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
						Namespace: namespace, Verb: verb, Group: group, Resource: name, Subresource: subresource,
					},
				}}
				g.Expect(admin.Create(t.Context(), review)).To(gomega.Succeed())
				g.Expect(review.Status.Allowed).To(gomega.Equal(want))
			})
		}
	}
}
