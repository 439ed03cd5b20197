// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	waitLimit      = 90 * time.Second
	webhookService = "trainyard-manager-webhook"
)

// world is a hub with JobSet, the rights and the webhooks of config/hub, and no manager. The tests share it.
type world struct {
	hub        *clusters.Cluster
	admin      client.Client
	warnings   *stage.Warnings // that admin has got
	server     *clusters.WebhookServer
	binary     string
	kubeconfig string // of the manager's service account
}

var shared = stage.ShareWith(startWorld)

// build builds the manager. On a busy machine the linker needs more time than clusters may take to start.
var build = sync.OnceValues(func() (string, error) { return clusters.Build(context.Background(), "manager") })

// hub returns the world. The first test that asks for it starts it.
func hub(t *testing.T) *world {
	t.Helper()
	binary, err := build()
	check.Must(t, err)
	w := shared.Get(t)
	w.binary = binary
	return w
}

func TestMain(m *testing.M) { shared.Main(m) }

func startWorld(ctx context.Context, cleanup func(func() error)) (*world, error) {
	hub, err := stage.StartServer(ctx, cleanup, clusters.Full("hub"), clusters.HubCRDs)
	if err != nil {
		return nil, err
	}
	w := &world{hub: hub.Cluster}
	if w.admin, w.warnings, err = hub.WithWarnings(); err != nil {
		return nil, err
	}
	if w.server, err = w.hub.NewWebhookServer("manager"); err != nil {
		return nil, err
	}
	if err := w.install(ctx); err != nil {
		return nil, err
	}
	if w.kubeconfig, err = hub.AccountKubeconfig(ctx, defaultNamespace, "trainyard-manager"); err != nil {
		return nil, err
	}
	return w, w.hub.ApplyTrainerRuntimes(ctx, "torch_distributed.yaml", "deepspeed_distributed.yaml")
}

// install applies config/hub without its Deployment.
func (w *world) install(ctx context.Context) error {
	objects, err := clusters.ReadObjects("../../config/namespace", "../../config/rbac", "../../config/webhook-hub")
	if err != nil {
		return err
	}
	if err := clusters.WebhookServices(w.server, objects...); err != nil {
		return err
	}
	return w.hub.ApplyObjects(ctx, objects...)
}

// start starts a manager with more flags until the test ends, and waits until it is ready.
func (w *world) start(t *testing.T, flags ...string) *stage.Program {
	t.Helper()
	return stage.RunProgram(t, w.hub, "manager", w.binary, append([]string{
		"--kubeconfig=" + w.kubeconfig, "--namespace=" + defaultNamespace, "--metrics-bind-address=0", "-v=1",
	}, flags...)...)
}

// startServing starts a manager that leads and serves no webhooks, and then one that serves them and does not lead.
func (w *world) startServing(t *testing.T) (leader, standby *stage.Program) {
	t.Helper()
	leader = w.start(t, "--webhook-bind-address=0")
	eventually(t, "a leader", func(g gomega.Gomega) {
		lease := &coordinationv1.Lease{}
		g.Expect(w.admin.Get(t.Context(), client.ObjectKey{Namespace: defaultNamespace, Name: leaseName}, lease)).To(gomega.Succeed())
		g.Expect(lease.Spec.HolderIdentity).NotTo(gomega.BeNil())
		g.Expect(*lease.Spec.HolderIdentity).NotTo(gomega.BeEmpty())
	})
	standby = w.start(t, w.serving()...)
	w.awaitWebhook(t)
	return leader, standby
}

// awaitWebhook waits until the API server asks a manager.
func (w *world) awaitWebhook(t *testing.T) {
	t.Helper()
	bad := newJob("default", "bad", reservedEnv)
	eventually(t, "the webhook to be asked", func(g gomega.Gomega) {
		g.Expect(apierrors.IsInvalid(w.admin.Create(t.Context(), bad.DeepCopy(), client.DryRunAll))).To(gomega.BeTrue())
	})
}

// holdLease keeps managers from leading until the test ends.
func (w *world) holdLease(t *testing.T) {
	t.Helper()
	key := metav1.ObjectMeta{Namespace: defaultNamespace, Name: leaseName}
	check.Must(t, client.IgnoreNotFound(w.admin.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: key})))
	now := metav1.NewMicroTime(time.Now())
	check.Must(t, w.admin.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: key, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("the test"), LeaseDurationSeconds: new(int32(3600)), AcquireTime: &now, RenewTime: &now,
	}}))
	t.Cleanup(func() { check.Must(t, w.admin.Delete(context.Background(), &coordinationv1.Lease{ObjectMeta: key})) })
}

func (w *world) serving() []string {
	address := net.JoinHostPort(w.server.Host, strconv.Itoa(w.server.Port))
	return []string{"--webhook-bind-address=" + address, "--webhook-service=" + defaultNamespace + "/" + webhookService}
}

// newJob returns a TrainJob that the manager owns.
func newJob(namespace, name string, changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	return stage.NewTrainJob(namespace, name, append([]func(*trainer.TrainJob){stage.Managed}, changes...)...)
}

func unmanaged(j *trainer.TrainJob) { j.Spec.ManagedBy = nil }

func reservedEnv(j *trainer.TrainJob) {
	j.Spec.Trainer.Env = []corev1.EnvVar{{Name: "PET_NNODES", Value: "2"}}
}

// namespace makes a namespace whose new TrainJobs are dispatched.
func (w *world) namespace(t *testing.T, name string) {
	t.Helper()
	labels := map[string]string{v1alpha1.LabelDispatch: v1alpha1.DispatchYes}
	check.Must(t, w.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
}

var eventually = check.Within(waitLimit, 50*time.Millisecond)
