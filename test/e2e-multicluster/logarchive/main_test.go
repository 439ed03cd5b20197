// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logarchive tests with whole processes what is left of the logs of jobs when their pods are gone: a hub with an
// archive of logs in a directory, and workers of which one is lost.
package logarchive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	// size is what is kept of a log.
	size = 4 << 10
)

var (
	y = yard.Suite{
		Options: yard.Options{Workers: []yard.Worker{worker(east), worker(west)}, Progress: yard.Print, Gateway: true},
		Timeout: 100 * time.Second,
		Poll:    100 * time.Millisecond,
	}
	// viewer may view the team's namespace, and stranger another one.
	viewer, stranger *user
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
	dir, err := os.MkdirTemp("", "log-archive-")
	if err != nil {
		return nil, err
	}
	y.Options.ManagerArgs = []string{"--log-archive-dir=" + dir, "--log-archive-size=" + fmt.Sprint(size)}
	end, err := y.Start(ctx)
	stop = func() error {
		if end != nil {
			err = end()
		}
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return stop, err
	}
	policy := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.DispatchPolicySpec{
		Retention: &metav1.Duration{Duration: 3 * time.Second}, Failover: v1alpha1.FailoverImmediate,
	}}
	for _, object := range []client.Object{
		policy, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}},
	} {
		if err := y.Hub.Create(ctx, object); err != nil {
			return stop, err
		}
	}
	if viewer, err = newUser(ctx, team, "vic"); err != nil {
		return stop, err
	}
	stranger, err = newUser(ctx, other, "sam")
	return stop, err
}

// user is somebody who may view one namespace of the hub.
type user struct{ kubeconfig string }

func newUser(ctx context.Context, namespace, name string) (*user, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
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
	u := &user{kubeconfig: filepath.Join(y.Yard.Hub.Dir, name+".kubeconfig")}
	return u, y.GatewayKubeconfig(u.kubeconfig, y.GatewayAddress(), request.Status.Token, namespace)
}

// result is what a command has printed.
type result struct {
	out, err string
	failed   bool
}

// String shows the result in a failure.
func (r result) String() string { return fmt.Sprintf("failed: %t\n%s%s", r.failed, r.out, r.err) }

// kubectl runs kubectl as the user, through the gateway.
func (u *user) kubectl(t *testing.T, args ...string) (r result) {
	t.Helper()
	binary, err := filepath.Abs("../../../bin/kubectl")
	check.Must(t, err)
	command := exec.CommandContext(t.Context(), binary, append([]string{"--kubeconfig", u.kubeconfig}, args...)...)
	command.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(y.Yard.Hub.Dir, "cache"))
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	r.failed = command.Run() != nil
	r.out, r.err = out.String(), errs.String()
	return r
}

// submit creates a job on the hub whose pods have these annotations. at pins it to a worker, unless it is empty.
func submit(t *testing.T, job yard.Job, at string, annotations map[string]string) *trainer.TrainJob {
	t.Helper()
	job.Namespace = team
	if job.RunFor == "" {
		job.RunFor = clusters.RunForever
	}
	object := job.TrainJob()
	if at != "" {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1alpha1.AnnotationClusters, "region="+at)
	}
	patch := object.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
	for key, value := range annotations {
		patch.Metadata.Annotations[key] = value
	}
	check.Must(t, y.Hub.Create(t.Context(), object))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), object.DeepCopy()))) })
	return object
}

// placeOf waits until a job has a worker.
func placeOf(t *testing.T, job *trainer.TrainJob) (at string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		at = string(y.DispatchOf(g, job).Spec.Cluster)
		g.Expect(at).NotTo(gomega.BeEmpty())
	})
	return at
}

// runs waits until the pods of a job have begun on a worker, and returns them.
func runs(t *testing.T, at string, job *trainer.TrainJob) (pods []corev1.Pod) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		pods = y.PodsOf(g, at, job)
		g.Expect(pods).To(gomega.HaveLen(int(ptr.Deref(job.Spec.Trainer.NumNodes, 1))))
		for i := range pods {
			g.Expect(pods[i].Status.Phase).NotTo(gomega.Equal(corev1.PodPending))
		}
	})
	return pods
}

// gone waits until a worker has no pods of a job.
func gone(t *testing.T, at string, job *trainer.TrainJob) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) { g.Expect(y.PodsOf(g, at, job)).To(gomega.BeEmpty()) })
}

func contains(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, one := range all {
		if !strings.Contains(text, one) {
			t.Errorf("there is no %q in\n%s", one, text)
		}
	}
}
