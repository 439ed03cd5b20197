// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway tests what users see through the gateway, with whole processes and the real kubectl: a hub and two
// workers on which the users have no rights.
package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	east, west = "east", "west"
	team       = "vision"
	other      = "audio"
)

var (
	y = yard.Suite{
		Options: yard.Options{
			Workers:  []yard.Worker{worker(east), worker(west)},
			Progress: yard.Print, Gateway: true, Lease: []string{"--leader-election-retry-period=500ms"},
		},
		Timeout: 100 * time.Second,
		Poll:    100 * time.Millisecond,
	}
	// editor may edit the team's namespace, viewer may view it, and stranger may do that elsewhere.
	editor, viewer, stranger *user
)

func worker(name string) yard.Worker {
	return yard.Worker{
		Name: name, Labels: map[string]string{"region": name},
		Nodes:    []clusters.NodeShape{yard.GPUNodes(name, 2, 8, "NVIDIA-H100")},
		Failover: v1alpha1.WorkerFailover{GracePeriod: &metav1.Duration{Duration: 5 * time.Second}},
	}
}

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	if stop, err = y.Start(ctx); err != nil {
		return stop, err
	}
	if err := y.Yard.Hub.ApplyKustomization(ctx, "../../../config/users"); err != nil {
		return stop, err
	}
	for _, namespace := range []string{team, other} {
		if err := y.Hub.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			return stop, err
		}
	}
	if editor, err = newUser(ctx, team, "ada", "edit"); err != nil {
		return stop, err
	}
	if viewer, err = newUser(ctx, team, "vic", "view"); err != nil {
		return stop, err
	}
	stranger, err = newUser(ctx, other, "sam", "edit")
	return stop, err
}

// user is somebody with a role in one namespace of the hub.
type user struct {
	name, token, kubeconfig string
}

func newUser(ctx context.Context, namespace, name, role string) (*user, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	for _, object := range []client.Object{account, binding} {
		if err := y.Hub.Create(ctx, object); err != nil {
			return nil, err
		}
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}
	if err := y.Hub.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, err
	}
	u := &user{name: name, token: request.Status.Token, kubeconfig: filepath.Join(y.Yard.Hub.Dir, name+".kubeconfig")}
	return u, y.GatewayKubeconfig(u.kubeconfig, y.GatewayAddress(), u.token, namespace)
}

// result is what a command has printed.
type result struct {
	out, err string
	code     int
}

// kubectl runs kubectl as the user, through the gateway.
func (u *user) kubectl(ctx context.Context, args ...string) result {
	return run(u.command(ctx, args...))
}

func (u *user) command(ctx context.Context, args ...string) *exec.Cmd {
	binary, err := filepath.Abs("../../../bin/kubectl")
	if err != nil {
		panic(err)
	}
	command := exec.CommandContext(ctx, binary, append([]string{"--kubeconfig", u.kubeconfig}, args...)...)
	command.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(y.Yard.Hub.Dir, "cache"))
	return command
}

func run(command *exec.Cmd) result {
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	r := result{out: out.String(), err: errs.String()}
	if err != nil {
		r.code = 1
		if exit := (*exec.ExitError)(nil); errorsAs(err, &exit) {
			r.code = exit.ExitCode()
		} else {
			r.err += err.Error()
		}
	}
	return r
}

func errorsAs(err error, to **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError) //nolint:errorlint // It is what Run returns.
	*to = e
	return ok
}

// String shows the result in a failure.
func (r result) String() string { return fmt.Sprintf("code %d\n%s%s", r.code, r.out, r.err) }

// submit creates a job on the hub, pinned to a worker, and waits until its pods run there.
func submit(t *testing.T, job yard.Job, at string, log string) *trainer.TrainJob {
	t.Helper()
	if job.Namespace == "" {
		job.Namespace = team
	}
	if job.RunFor == "" {
		job.RunFor = clusters.RunForever
	}
	object := job.TrainJob()
	if at != "" {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1alpha1.AnnotationClusters, "region="+at)
	}
	if log != "" {
		patch := object.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
		patch.Metadata.Annotations[clusters.LogAnnotation] = log
	}
	check.Must(t, y.Hub.Create(t.Context(), object))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), object.DeepCopy()))) })
	return object
}

// runs waits until the pods of a job run on a worker, and returns their names.
func runs(t *testing.T, at string, job *trainer.TrainJob) (names []string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		names = nil
		pods := y.PodsOf(g, at, job)
		g.Expect(pods).To(gomega.HaveLen(int(ptr.Deref(job.Spec.Trainer.NumNodes, 1))))
		for i := range pods {
			g.Expect(pods[i].Status.Phase).To(gomega.Equal(corev1.PodRunning))
			names = append(names, pods[i].Name)
		}
	})
	return names
}

func contains(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, one := range all {
		if !strings.Contains(text, one) {
			t.Errorf("there is no %q in\n%s", one, text)
		}
	}
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) { g.Expect(holds()).To(gomega.BeTrue()) })
}

// insecure is a transport for tests that send what no client sends.
func insecure() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
}
