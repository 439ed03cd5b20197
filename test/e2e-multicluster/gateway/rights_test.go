// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// newUser returns a user of the team with a role that permits these verbs, by resource, and waits until the hub knows.
func newUser(t *testing.T, name string, verbs map[string][]string) *yard.User {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "of-" + name}}
	for resource, verbs := range verbs {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs})
	}
	create(t, y.Hub, role)
	u, err := y.NewUser(t.Context(), team, name, role.Name)
	check.Must(t, err)
	eventually(t, func() bool {
		for resource, verbs := range verbs {
			resource, subresource, _ := strings.Cut(resource, "/")
			for _, verb := range verbs {
				if u.Kubectl(t.Context(), "auth", "can-i", verb, resource, "--subresource="+subresource).Code != 0 {
					return false
				}
			}
		}
		return true
	})
	return u
}

// TestRightsOnSubresources: the right to see a pod of a worker is none to read its log or to run commands there, and the
// hub says so in its own words.
func TestRightsOnSubresources(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "half-shown"}, east, "secret")
	pod := runs(t, east, job)[0]
	refused := func(name, verb, resource string) string {
		return fmt.Sprintf(`pods %q is forbidden: User "system:serviceaccount:vision:%s" cannot %s resource %q in API group "" in the namespace "vision"`,
			pod, name, verb, resource)
	}
	refuses := func(t *testing.T, u *yard.User, verb, resource string, args ...string) {
		t.Helper()
		r := u.Kubectl(t.Context(), args...)
		check.Equal(t, 1, r.Code, "code of %v: %s", args, r)
		contains(t, r.Err, refused(u.Name, verb, resource))
		if strings.Contains(r.Out+r.Err, "secret") {
			t.Errorf("the log is shown: %s", r)
		}
	}

	t.Run("PodsOnly", func(t *testing.T) {
		t.Parallel()
		u := newUser(t, "penny", map[string][]string{"pods": {"get", "list", "watch"}})
		contains(t, u.Kubectl(t.Context(), "get", "pod", pod).Out, pod)
		refuses(t, u, "get", "pods/log", "logs", pod)
		refuses(t, u, "get", "pods/log", "logs", "-f", pod)
		refuses(t, u, "get", "pods/log", "logs", "-l", "jobset.sigs.k8s.io/jobset-name=half-shown")
		refuses(t, u, "create", "pods/exec", "exec", pod, "--", "true")
		refuses(t, u, "create", "pods/exec", "cp", pod+":/file", t.TempDir()+"/file")
		refuses(t, u, "create", "pods/attach", "attach", pod)
		refuses(t, u, "create", "pods/portforward", "port-forward", pod, ":8080")
	})
	t.Run("LogsOnly", func(t *testing.T) { // A client that knows the name needs no other right.
		t.Parallel()
		u := newUser(t, "lou", map[string][]string{"pods/log": {"get"}})
		a := send(t, u, "GET", "/api/v1/namespaces/"+team+"/pods/"+pod+"/log", nil, nil)
		check.Equal(t, 200, a.code, "code: %s", a.body)
		check.Equal(t, "secret\n", string(a.body), "log")
		refuses(t, u, "get", "pods", "get", "pod", pod)
	})
	t.Run("GetOfExec", func(t *testing.T) { // An API server of today lets nobody execute commands who may not create exec.
		t.Parallel()
		u := newUser(t, "gus", map[string][]string{"pods": {"get"}, "pods/exec": {"get"}})
		refuses(t, u, "create", "pods/exec", "exec", pod, "--", "true")
	})
	t.Run("CreateOfExec", func(t *testing.T) { // A WebSocket needs the right to get exec, too. SPDY does not.
		t.Parallel()
		u := newUser(t, "cora", map[string][]string{"pods": {"get"}, "pods/exec": {"create"}})
		r := u.Kubectl(t.Context(), "-v=4", "exec", pod, "--", "echo", "hello")
		check.Equal(t, "hello\n", r.Out, "output: %s", r)
		contains(t, r.Err, "fallback")
	})
	t.Run("OnePod", func(t *testing.T) { // A right on one name is one on no other.
		t.Parallel()
		other := submit(t, yard.Job{Name: "not-shown"}, east, "secret")
		hidden := runs(t, east, other)[0]
		u := newUser(t, "uma", map[string][]string{})
		create(t, y.Hub, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: u.Name}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"pods", "pods/log"}, ResourceNames: []string{pod}, Verbs: []string{"get", "list", "watch"},
		}}})
		create(t, y.Hub, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: u.Name + "-too"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: u.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: team, Name: u.Name}},
		})
		eventually(t, func() bool { return u.Kubectl(t.Context(), "logs", pod).Out == "secret\n" })
		contains(t, u.Kubectl(t.Context(), "get", "pods", "--field-selector=metadata.name="+pod).Out, pod)
		for _, args := range [][]string{
			{"logs", hidden}, {"get", "pod", hidden}, {"get", "pods"}, {"get", "pods", "--field-selector=metadata.name=" + hidden},
		} {
			r := u.Kubectl(t.Context(), args...)
			check.Equal(t, 1, r.Code, "code of %v: %s", args, r)
			contains(t, r.Err, "forbidden: User", u.Name)
			if strings.Contains(r.Out, hidden) {
				t.Errorf("%v shows %s", args, r)
			}
		}
	})
}

// TestFaultWorkerPermitsNothing: a worker that lets the hub read pods and no more is named to users, with what its admin has
// to run.
func TestFaultWorkerPermitsNothing(t *testing.T) {
	job := submit(t, yard.Job{Name: "not-permitted"}, east, "begun")
	pod := runs(t, east, job)[0]
	overlays := []string{"logs", "exec"}
	permit := func(ctx context.Context) {
		for _, overlay := range overlays {
			check.Must(t, y.Yard.Workers[east].ApplyKustomization(ctx, "../../../config/worker-"+overlay))
		}
	}
	t.Cleanup(func() { permit(context.Background()) })
	for _, overlay := range overlays {
		check.Must(t, y.Workers[east].Delete(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "trainyard-hub-" + overlay}}))
	}

	words := func(what, verb, subresource, flags string) string {
		return fmt.Sprintf(`worker "east" does not let Trainyard %s: pods %q is forbidden: User "system:serviceaccount:trainyard-system:trainyard-hub" `+
			`cannot %s resource "pods/%s" in API group "" in the namespace "vision"; an admin of the worker permits it with "kubectl trainyard join east%s"`,
			what, pod, verb, subresource, flags)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{args: []string{"logs", pod}, want: words("read logs", "get", "log", "")},
		{args: []string{"logs", "-f", pod}, want: words("read logs", "get", "log", "")},
		{args: []string{"exec", pod, "--", "true"}, want: words("execute commands", "create", "exec", " --exec")},
		{args: []string{"cp", pod + ":/file", t.TempDir() + "/file"}, want: words("execute commands", "create", "exec", " --exec")},
		{args: []string{"attach", pod}, want: words("attach to containers", "create", "attach", " --exec")},
		{args: []string{"port-forward", pod, ":8080"}, want: words("forward ports", "create", "portforward", " --exec")},
	} {
		var r yard.Result
		eventually(t, func() bool { r = editor.Kubectl(t.Context(), tc.args...); return r.Code == 1 }) // The worker's authorizer learns of it later.
		contains(t, r.Err, tc.want)
	}
	r := viewer.Kubectl(t.Context(), "get", "pods")
	contains(t, r.Out, pod)
	check.Equal(t, "", r.Err, "warnings of a list of pods")
	permit(t.Context())
	eventually(t, func() bool { return editor.Kubectl(t.Context(), "logs", pod).Out == "begun\n" })
	eventually(t, func() bool { return editor.Kubectl(t.Context(), "exec", pod, "--", "echo", "hello").Out == "hello\n" })
}
