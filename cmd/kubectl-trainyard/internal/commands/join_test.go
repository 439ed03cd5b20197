// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/registration"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// far is a cluster that the tests of join use as the worker of the world's cluster: an API server and no controllers.
var far *server

// setUpPair starts both clusters.
func setUpPair(t *testing.T) {
	t.Helper()
	setUp(t)
	far = sharedFar.Get(t)
}

// startFar starts far, and gives the world, which is its hub, the roles of a hub.
func startFar(ctx context.Context, cleanup func(func() error)) (*server, error) {
	f, err := startServer(ctx, cleanup, clusters.Options{Name: "far"}, clusters.JobSetCRDs)
	if err != nil {
		return nil, err
	}
	return f, world.cluster.ApplyFiles(ctx, "../../../../config/namespace/namespace.yaml", "../../../../config/rbac")
}

// pairFlags name both clusters to the plugin.
func pairFlags(args ...string) []string {
	return append(args, "--kubeconfig", far.cluster.KubeconfigPath, "--hub-kubeconfig", world.cluster.KubeconfigPath)
}

// onPair runs the plugin on both clusters, and returns its outputs and exit code.
func onPair(t *testing.T, args ...string) (out, errOut string, code int) {
	t.Helper()
	c := start(t, pairFlags(args...)...)
	code = c.wait(t)
	return c.out.String(), c.err.String(), code
}

// state has the objects of a join on both clusters, without what differs each time that they are created.
func state(t *testing.T, worker string) map[string]any {
	t.Helper()
	found := map[string]any{}
	look := func(side string, client dynamic.Interface, group, version, resource, namespace string) {
		list, err := client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}).
			Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		check.Must(t, err)
		for i := range list.Items {
			o := &list.Items[i]
			if !strings.Contains(o.GetName(), "trainyard-hub") && !strings.Contains(o.GetName(), worker) && !strings.Contains(o.GetName(), "trainyard-marks") &&
				o.GetName() != "trainyard-exec" {
				continue
			}
			found[side+" "+resource+"/"+o.GetName()] = map[string]any{
				"labels": o.GetLabels(), "spec": o.Object["spec"], "rules": o.Object["rules"], "subjects": o.Object["subjects"],
				"data": len(secretKeys(o)),
			}
		}
	}
	const rbac = "rbac.authorization.k8s.io"
	for _, resource := range []string{"clusterroles", "clusterrolebindings"} {
		look("worker", far.dynamic, rbac, "v1", resource, "")
	}
	for _, resource := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		look("worker", far.dynamic, "admissionregistration.k8s.io", "v1", resource, "")
	}
	for _, resource := range []string{"roles", "rolebindings"} {
		look("worker", far.dynamic, rbac, "v1", resource, "trainyard-system")
		look("hub", world.dynamic, rbac, "v1", resource, "trainyard-system")
	}
	for _, resource := range []string{"secrets", "serviceaccounts"} {
		look("worker", far.dynamic, "", "v1", resource, "trainyard-system")
	}
	look("hub", world.dynamic, "", "v1", "secrets", "trainyard-system")
	look("hub", world.dynamic, "trainyard.dev", "v1alpha1", "workerclusters", "")
	return found
}

func secretKeys(o *unstructured.Unstructured) map[string]any {
	data, _, _ := unstructured.NestedMap(o.Object, "data")
	return data
}

// leave takes the worker out. The test fails if anything is left of the registration.
func leave(t *testing.T, worker string) {
	t.Helper()
	if out, errOut, code := onPair(t, "leave", worker, "--force"); code != 0 {
		t.Fatalf("leave ends with %d:\n%s%s", code, out, errOut)
	}
	if left := state(t, worker); len(left) > 0 {
		t.Errorf("leave has left: %v", left)
	}
}

// TestJoinAndLeave registers a worker twice, and takes it out twice. Dry runs change nothing.
func TestJoinAndLeave(t *testing.T) {
	setUpPair(t)
	join := []string{"join", "joined", "--agent=none", "--wait=false", "--exec", "--label=gpu=h100", "--price=nvidia.com/gpu=2.5"}
	out, errOut, code := onPair(t, append(join, "--dry-run=server")...)
	if code != 0 || !strings.Contains(out, "workercluster.trainyard.dev/joined created (server dry run)") {
		t.Fatalf("the dry run ends with %d:\n%s%s", code, out, errOut)
	}
	if found := state(t, "joined"); len(found) > 0 {
		t.Errorf("the dry run has made: %v", found)
	}
	if out, errOut, code = onPair(t, join...); code != 0 || !strings.Contains(out, "hub     workercluster.trainyard.dev/joined created\n") {
		t.Fatalf("join ends with %d:\n%s%s", code, out, errOut)
	}
	before := state(t, "joined")
	if len(before) != 18 {
		t.Errorf("join has made %d objects: %v", len(before), before)
	}
	token := kubeconfigOfJoined(t, "joined")
	out, _, code = onPair(t, join...)
	if code != 0 || strings.Contains(out, "created") || strings.Contains(out, "configured") || !strings.Contains(out, "unchanged") {
		t.Errorf("the second join ends with %d:\n%s", code, out)
	}
	if again := kubeconfigOfJoined(t, "joined"); !bytes.Equal(again, token) {
		t.Error("the second join has made a new token")
	}
	check.Diff(t, before, state(t, "joined"), "the second join has changed")
	if out, _, code = onPair(t, "leave", "joined", "--force", "--dry-run=server"); code != 0 || !strings.Contains(out, "deleted (server dry run)") {
		t.Errorf("the dry run of leave ends with %d:\n%s", code, out)
	}
	check.Diff(t, before, state(t, "joined"), "the dry run of leave has changed")
	leave(t, "joined")
	leave(t, "joined")
}

// TestRightsOfJoin checks which rights join grants beside config/worker, and that it takes none away.
func TestRightsOfJoin(t *testing.T) {
	setUpPair(t)
	defer leave(t, "granted")
	logs := []string{"trainyard-hub-logs"}
	all := []string{"trainyard-hub-exec", "trainyard-hub-logs"}
	for _, step := range []struct {
		why  string
		args []string
		want []string
	}{
		{"no rights beside config/worker", []string{"--logs=false"}, nil},
		{"the logs are the default", nil, logs},
		{"--logs=false takes nothing away", []string{"--logs=false"}, logs},
		{"exec is asked for", []string{"--exec"}, all},
		{"a join without --exec takes nothing away", nil, all},
		{"to look for what jobs name is asked for", []string{"--lookup"}, append(slices.Clone(all), "trainyard-hub-lookup")},
	} {
		args := append([]string{"join", "granted", "--agent=none", "--wait=false"}, step.args...)
		if out, errOut, code := onPair(t, args...); code != 0 {
			t.Fatalf("%v ends with %d:\n%s%s", args, code, out, errOut)
		}
		var got []string
		bindings, err := far.kubernetes.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=trainyard"})
		check.Must(t, err)
		for i := range bindings.Items {
			if name := bindings.Items[i].RoleRef.Name; name != "trainyard-hub" {
				got = append(got, name)
			}
		}
		check.Diff(t, step.want, got, step.why)
	}
}

func kubeconfigOfJoined(t *testing.T, worker string) []byte {
	t.Helper()
	secret, err := world.kubernetes.CoreV1().Secrets("trainyard-system").Get(t.Context(), worker+"-kubeconfig", metav1.GetOptions{})
	check.Must(t, err)
	return secret.Data[kubeconfigs.SecretKey]
}

// TestJoinRefuses checks what the preflight finds, and that nothing is written then.
func TestJoinRefuses(t *testing.T) {
	setUpPair(t)
	both := []string{"--agent=none", "--wait=false"}
	if _, errOut, code := onPair(t, append([]string{"join", "taken"}, both...)...); code != 0 {
		t.Fatal(errOut)
	}
	defer leave(t, "taken")
	worker, err := far.kubernetes.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	check.Must(t, err)
	patch(t, workers, "", "taken", fmt.Sprintf(`{"status":{"clusterID":%q}}`, worker.UID), "status")
	hub := world.cluster.KubeconfigPath
	cases := map[string]struct {
		why  string
		args []string
		want string
	}{
		"OtherName": {"a cluster has one name", pairFlags("join", "second"), `FAIL  worker  it is WorkerCluster "taken" of the hub already`},
		"Hub":       {"a hub is no worker", []string{"join", "self", "--kubeconfig", hub, "--hub-kubeconfig", hub}, "FAIL  worker  it is the hub itself"},
		"NoHub": {
			"the clusters were swapped", []string{"join", "swapped", "--kubeconfig", hub, "--hub-kubeconfig", far.cluster.KubeconfigPath},
			"FAIL  hub     Trainyard is not installed here",
		},
		"NoRights": {"only an admin can", pairFlags("join", "taken", "--as=jane"), "FAIL  worker  "},
		"Address":  {"the hub would refuse the kubeconfig", pairFlags("join", "taken", "--server=http://x"), "is plain http"},
	}
	before := state(t, "taken")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := start(t, append(tc.args, both...)...)
			if code := c.wait(t); code != 1 || !strings.Contains(c.out.String(), tc.want) || !strings.Contains(c.err.String(), "nothing was changed") {
				t.Errorf("%s: exit code %d, want %q in:\n%s%s", tc.why, code, tc.want, c.out.String(), c.err.String())
			}
		})
	}
	check.Diff(t, before, state(t, "taken"), "a join that was refused has changed")
}

// cutter loses the answer to one request that writes, and fails all that follow.
type cutter struct {
	mu   sync.Mutex
	left int
}

var errCut = errors.New("cut")

// wrap makes all requests of a cluster go through the cutter.
func (c *cutter) wrap(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodGet || strings.Contains(request.URL.Path, "selfsubject") {
				return next.RoundTrip(request)
			}
			c.mu.Lock()
			c.left--
			left := c.left
			c.mu.Unlock()
			if left < 0 {
				return nil, errCut
			}
			response, err := next.RoundTrip(request)
			if left == 0 && err == nil {
				_ = response.Body.Close()
				return nil, errCut
			}
			return response, err
		})
	})
	return config
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// TestJoinIsInterrupted interrupts a join after each of its writes and loses the answer of that write. Then it repeats
// the join. The result is always that of a join without interruption. The same holds for leave.
func TestJoinIsInterrupted(t *testing.T) {
	setUpPair(t)
	const worker = "interrupted"
	hub, far := pairOf(t, &cutter{left: 1 << 30})
	join := func(hub, far *registration.Cluster) error {
		j := registration.NewJoin(hub, far, registration.Options{
			Name: worker, Namespace: "trainyard-system", ManagerAccount: "trainyard-manager", Agent: registration.AgentNone,
			TokenLife: registration.DefaultTokenLife, Labels: []string{"a=b"},
		}, func(string) error { return nil })
		if _, err := j.Preflight(t.Context()); err != nil {
			return err
		}
		return j.Apply(t.Context())
	}
	leave := func(hub, far *registration.Cluster) error {
		l, err := registration.NewLeave(t.Context(), hub, far, registration.Options{Name: worker, Namespace: "trainyard-system"}, func(string) error { return nil })
		if err != nil {
			return err
		}
		if _, err := l.Revoke(t.Context()); err != nil {
			return err
		}
		_, err = l.Unregister(t.Context(), worker)
		return err
	}
	check.Must(t, join(hub, far))
	joined := state(t, worker)
	for n := 1; ; n++ {
		// Each round begins with a worker that has joined. leave is interrupted and repeated, and then join is.
		leaveErr := leave(pairOf(t, &cutter{left: n}))
		if err := leave(hub, far); err != nil {
			t.Fatalf("leave after a cut at write %d: %v", n, err)
		}
		if left := state(t, worker); len(left) > 0 {
			t.Fatalf("leave after a cut at write %d has left: %v", n, left)
		}
		joinErr := join(pairOf(t, &cutter{left: n}))
		if err := join(hub, far); err != nil {
			t.Fatalf("join after a cut at write %d: %v", n, err)
		}
		if diff := cmp.Diff(joined, state(t, worker)); diff != "" {
			t.Fatalf("join after a cut at write %d (-uninterrupted +interrupted):\n%s", n, diff)
		}
		if leaveErr == nil && joinErr == nil {
			if n < 15 {
				t.Errorf("only %d writes were cut", n-1)
			}
			break
		}
	}
	check.Must(t, leave(hub, far))
}

// pairOf returns both clusters with a cutter in between.
func pairOf(t *testing.T, cut *cutter) (hub, worker *registration.Cluster) {
	t.Helper()
	hub, err := registration.NewCluster(registration.HubSide, "", cut.wrap(world.cluster.Config), false)
	if err == nil {
		worker, err = registration.NewCluster(registration.WorkerSide, "", cut.wrap(far.cluster.Config), false)
	}
	check.Must(t, err)
	return hub, worker
}

// TestStolenTokens checks what the rights that join grants are good for.
func TestStolenTokens(t *testing.T) {
	setUpPair(t)
	if out, errOut, code := onPair(t, "join", "robbed", "--agent=none", "--wait=false"); code != 0 {
		t.Fatal(out, errOut)
	}
	defer leave(t, "robbed")
	credentials, err := kubeconfigs.Parse(kubeconfigOfJoined(t, "robbed"), time.Now())
	check.Must(t, err)
	t.Run("TokenOfOneWorkerIsUnknownToAnother", func(t *testing.T) {
		config := rest.AnonymousClientConfig(world.cluster.Config)
		config.BearerToken = credentials.Config.BearerToken
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("another cluster says %v to the token", err)
		}
	})
	t.Run("TokenRenewsOnlyItself", func(t *testing.T) {
		thief := kubernetes.NewForConfigOrDie(credentials.Config)
		other := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
		for _, namespace := range []string{"trainyard-system", "default"} {
			if _, err := far.kubernetes.CoreV1().ServiceAccounts(namespace).Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = far.kubernetes.CoreV1().ServiceAccounts(namespace).Delete(context.Background(), other.Name, metav1.DeleteOptions{})
			})
			_, err := thief.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), other.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			if !apierrors.IsForbidden(err) {
				t.Errorf("a token of another account in namespace %q: %v", namespace, err)
			}
		}
		if _, err := thief.CoreV1().Secrets("trainyard-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the Secrets of the worker: %v", err)
		}
		if _, err := thief.CoreV1().ServiceAccounts("trainyard-system").CreateToken(t.Context(), "trainyard-hub", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}); err != nil {
			t.Errorf("a token of its own account: %v", err)
		}
	})
	t.Run("ManagerWritesOnlySecretsOfJoin", func(t *testing.T) {
		admins := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "of-an-admin"}}
		if _, err := world.kubernetes.CoreV1().Secrets("trainyard-system").Create(t.Context(), admins, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		config := rest.CopyConfig(world.cluster.Config)
		config.Impersonate.UserName = "system:serviceaccount:trainyard-system:trainyard-manager"
		manager := kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("trainyard-system")
		label := []byte(`{"metadata":{"labels":{"x":"y"}}}`)
		if _, err := manager.Patch(t.Context(), admins.Name, types.MergePatchType, label, metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the manager writes a Secret that join has not made: %v", err)
		}
		if _, err := manager.Patch(t.Context(), "robbed-kubeconfig", types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
			t.Errorf("the manager cannot write the Secret of join: %v", err)
		}
		if err := manager.Delete(t.Context(), "robbed-kubeconfig", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the manager deletes a Secret: %v", err)
		}
	})
}
