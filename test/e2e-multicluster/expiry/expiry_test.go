// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expiry runs jobs while the hub's token for a worker expires. The shortest life that an API server gives a
// token is ten minutes, so the test takes eleven, and runs only on demand:
//
//	TOKEN_EXPIRY=1 go test ./test/e2e-multicluster/expiry -v
package expiry

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	brief     = "brief"
	tokenLife = 10 * time.Minute
	// after the expiry the test goes on for this long: API servers allow for clocks that differ a little.
	after = time.Minute
)

var y = yard.Suite{
	Options: yard.Options{
		Workers:  []yard.Worker{{Name: brief, Nodes: []clusters.NodeShape{yard.GPUNodes(brief, 2, 8, "NVIDIA-H100")}}},
		Audit:    true,
		Progress: yard.Print,
	},
	Timeout: 3 * time.Minute,
	Poll:    200 * time.Millisecond,
}

// TestJobsRunThroughExpiry runs one job from before a renewal until after the end of the first token, and short jobs
// all the time. Nothing is refused, and no job is placed twice.
func TestJobsRunThroughExpiry(t *testing.T) {
	if os.Getenv("TOKEN_EXPIRY") == "" {
		t.Skip("it takes eleven minutes: set TOKEN_EXPIRY=1")
	}
	if clusters.OnKind() {
		t.Skip("not on kind: it reads audit logs")
	}
	stop, err := y.Start(t.Context())
	if stop != nil {
		t.Cleanup(func() { check.Must(t, stop()) })
	}
	check.Must(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "trainyard-system", Name: brief + "-kubeconfig"}}
	check.Must(t, y.Hub.Delete(t.Context(), secret)) // Its token would live for a week.
	y.Eventually(t, func(g gomega.Gomega) {
		worker := &v1alpha1.WorkerCluster{}
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKey{Name: brief}, worker)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionFalse(worker.Status.Conditions, v1alpha1.WorkerClusterReady)).To(gomega.BeTrue())
	})
	_, err = y.Plugin(t.Context(), "join", brief, "--kubeconfig", y.Yard.Workers[brief].KubeconfigPath, "--hub-kubeconfig", y.Yard.Hub.KubeconfigPath,
		"--agent=none", "--timeout=120s", "--token-life="+tokenLife.String())
	check.Must(t, err)
	first := kubeconfigOf(t)
	token := tokenOf(t, first)
	if life := token.Expires.Sub(token.Issued); life != tokenLife {
		t.Fatalf("the token lives for %s", life)
	}
	long := submit(t, "through", clusters.RunForever)
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.DispatchOf(g, long).Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
	})
	ready := readySince(t)
	began := time.Now()

	short := 0
	for ; time.Now().Before(token.Expires.Add(after)); short++ {
		job := submit(t, fmt.Sprintf("short-%d", short), "5s")
		y.Eventually(t, func(g gomega.Gomega) {
			g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), job)).To(gomega.Succeed())
			g.Expect(meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue())
		})
		check.Equal(t, 1, y.DispatchOf(gomega.NewWithT(t), job).Spec.Attempt, "how often %s was placed", job.Name)
	}
	t.Logf("%d short jobs have ended; the token was renewed at %s", short, tokenOf(t, kubeconfigOf(t)).Issued)
	d := y.DispatchOf(gomega.NewWithT(t), long)
	if d.Spec.Attempt != 1 || d.Status.Phase != v1alpha1.PhaseRunning {
		t.Errorf("the long job is %s in attempt %d", d.Status.Phase, d.Spec.Attempt)
	}
	if since := readySince(t); !since.Equal(ready) {
		t.Errorf("the worker was not Ready at some time: Ready since %s, and not since %s", since, ready)
	}
	if refused := refusals(t, y.Yard.Workers[brief], began); len(refused) > 0 {
		t.Errorf("the worker has refused: %v", refused)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(first)
	check.Must(t, err)
	old, err := kubernetes.NewForConfig(config)
	check.Must(t, err)
	if _, err := old.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("the first token has not expired, so the test shows nothing: %v", err)
	}
}

func submit(t *testing.T, name, runFor string) *trainer.TrainJob {
	t.Helper()
	job := yard.Job{Name: name, GPUs: 1, RunFor: runFor}.TrainJob()
	check.Must(t, y.Hub.Create(t.Context(), job))
	return job
}

func kubeconfigOf(t *testing.T) []byte {
	t.Helper()
	secret := &corev1.Secret{}
	check.Must(t, y.Hub.Get(t.Context(), client.ObjectKey{Namespace: "trainyard-system", Name: brief + "-kubeconfig"}, secret))
	return secret.Data[kubeconfigs.SecretKey]
}

func tokenOf(t *testing.T, kubeconfig []byte) kubeconfigs.ServiceAccountToken {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	check.Must(t, err)
	token, err := kubeconfigs.ParseServiceAccountToken(config.BearerToken)
	check.Must(t, err)
	return token
}

// readySince is since when the worker is Ready without a break.
func readySince(t *testing.T) time.Time {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{}
	check.Must(t, y.Hub.Get(context.Background(), client.ObjectKey{Name: brief}, worker))
	ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		t.Fatalf("the worker is not Ready: %+v", ready)
	}
	return ready.LastTransitionTime.Time
}

// refusals are the requests of anybody that an API server has answered with 401 since a time.
func refusals(t *testing.T, cluster *clusters.Cluster, since time.Time) (refused []string) {
	t.Helper()
	file, err := os.Open(cluster.AuditLog())
	check.Must(t, err)
	defer file.Close()
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // The end, perhaps in the middle of a line.
			return refused
		}
		var event auditv1.Event
		check.Must(t, json.Unmarshal(line, &event))
		if event.ResponseStatus != nil && event.ResponseStatus.Code == 401 && event.RequestReceivedTimestamp.After(since) {
			refused = append(refused, event.UserAgent+" "+event.Verb+" "+event.RequestURI)
		}
	}
}
