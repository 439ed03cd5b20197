// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway tests what users see through the gateway, with whole processes and the real kubectl: a hub and two
// workers on which the users have no rights.
package gateway

import (
	"context"
	"crypto/tls"
	"flag"
	"net/http"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	hub, east, west = yard.HubName, "east", "west"
	team            = "vision"
	other           = "audio"
)

// lease lets managers of a busy machine renew their lease in time, and another one take it over soon.
var lease = []string{"--leader-election-lease-duration=60s", "--leader-election-renew-deadline=50s", "--leader-election-retry-period=500ms"}

var (
	y = yard.Suite{
		Options: yard.Options{
			Workers:  []yard.Worker{worker(east), worker(west)},
			HubNodes: []clusters.NodeShape{yard.GPUNodes(hub, 1, 8, "NVIDIA-H100")},
			Progress: yard.Print, Gateway: true, HubWebhooks: true, Lease: lease,
		},
		Timeout: 100 * time.Second,
		Poll:    300 * time.Millisecond,
	}
	// editor may edit the team's namespace, viewer may view it, and stranger may do that elsewhere.
	editor, viewer, stranger *yard.User
)

func worker(name string) yard.Worker {
	return yard.Worker{
		Name: name, Labels: map[string]string{"region": name},
		Nodes:    []clusters.NodeShape{yard.GPUNodes(name, 2, 8, "NVIDIA-H100")},
		Failover: v1alpha1.WorkerFailover{GracePeriod: &metav1.Duration{Duration: 5 * time.Second}},
	}
}

// TestMain lets four tests run at a time: those that wait run kubectl again and again, which takes a busy hub's API server
// the time to renew leases.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err) // Only a TestMain has the flags of go test.
	}
	yard.Main(m, start)
}

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
	if editor, err = y.NewUser(ctx, team, "ada", "edit"); err != nil {
		return stop, err
	}
	if viewer, err = y.NewUser(ctx, team, "vic", "view"); err != nil {
		return stop, err
	}
	stranger, err = y.NewUser(ctx, other, "sam", "edit")
	return stop, err
}

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
