// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	waitLimit      = 4 * time.Minute
	agentNamespace = "kubeflow-system"
	agentAccount   = "trainyard-worker-agent"
)

// environment is a cluster with simulated nodes, JobSet, and the rights of config/worker-agent.
type environment struct {
	binary     string
	cluster    *clusters.Cluster
	client     client.Client
	kubeconfig string // of the agent's service account
}

var shared = stage.ShareWith(startEnvironment)

func TestMain(m *testing.M) { shared.Main(m) }

// world is the environment that the tests share. The first test that calls setUp starts it.
var world *environment

func setUp(t *testing.T) {
	t.Helper()
	world = shared.Get(t)
}

func startEnvironment(ctx context.Context, cleanup func(func() error)) (*environment, error) {
	ctx = context.WithoutCancel(ctx) // On a busy machine the linker needs more time than clusters may take to start.
	o := clusters.Full("agent", clusters.NodeShape{Count: 2})
	o.CRDs = []string{
		"../../config/crd/worker/trainyard.dev_capacityreports.yaml", "../../config/crd/worker/trainyard.dev_executionleases.yaml",
	}
	server, err := stage.StartServer(ctx, cleanup, o)
	if err != nil {
		return nil, err
	}
	e := &environment{cluster: server.Cluster, client: server.Admin}
	if e.binary, err = clusters.Build(ctx, "worker-agent"); err != nil {
		return nil, err
	}
	if err := e.installAgent(ctx); err != nil {
		return nil, err
	}
	if e.kubeconfig, err = server.AccountKubeconfig(ctx, agentNamespace, agentAccount); err != nil {
		return nil, err
	}
	return e, e.cluster.ApplyTrainerRuntimes(ctx, "torch_distributed.yaml", "deepspeed_distributed.yaml")
}

// installAgent applies config/worker-agent without its Deployment.
func (e *environment) installAgent(ctx context.Context) error {
	objects, err := clusters.ReadObjects(
		"../../config/worker-agent/namespace.yaml", "../../config/worker-agent", "../../config/admission")
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool { return object.GetKind() == "Deployment" })
	return e.cluster.ApplyObjects(ctx, objects...)
}

type agent struct {
	*stage.Program
	metrics string
}

// startAgent starts an agent with more flags until the test ends, and waits until it is ready.
func startAgent(t *testing.T, flags ...string) *agent {
	t.Helper()
	metrics := freeAddress(t)
	return &agent{metrics: metrics, Program: stage.RunProgram(t, world.cluster, "worker-agent", world.binary, append([]string{
		"--kubeconfig=" + world.kubeconfig, "--metrics-bind-address=" + metrics, "--metrics-secure=false", "--log-format=json", "-v=1",
	}, flags...)...)}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := ports.Free()
	check.Must(t, err)
	return address
}

// fetch returns the body of an answer with status 200.
func fetch(address, path string) (string, error) {
	response, err := http.Get("http://" + address + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// awaitMetric waits until the metrics have a line. The agent counts what a status says after it has written the status.
func (a *agent) awaitMetric(t *testing.T, line string) {
	t.Helper()
	eventually(t, "/metrics with "+line, func(g gomega.Gomega) {
		body, err := fetch(a.metrics, "/metrics")
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(strings.Split(body, "\n")).To(gomega.ContainElement(line))
	})
}

// checkRights checks that no request was forbidden: the rights in config/worker-agent are enough.
func (a *agent) checkRights(t *testing.T) {
	t.Helper()
	if log := a.Log(t); strings.Contains(log, "forbidden") {
		t.Errorf("the log tells of missing rights:\n%s", log)
	}
}

// isLeader reads from an agent's metrics whether it leads.
func (a *agent) isLeader(g gomega.Gomega) bool {
	body, err := fetch(a.metrics, "/metrics")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return strings.Contains(body, `leader_election_master_status{name="`+leaseName+`"} 1`)
}

func leaseHolder(t *testing.T) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	check.Must(t, world.client.Get(t.Context(), client.ObjectKey{Namespace: agentNamespace, Name: leaseName}, lease))
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func createJob(t *testing.T, name string, changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	t.Helper()
	j := stage.NewTrainJob(metav1.NamespaceDefault, name, changes...)
	check.Must(t, world.client.Create(t.Context(), j))
	t.Cleanup(func() { // The agent of the next test must not finish it.
		check.Must(t, client.IgnoreNotFound(world.client.Delete(context.Background(), j)))
	})
	return j
}

// awaitComplete waits until a TrainJob has the one condition Complete.
func awaitComplete(t *testing.T, j *trainer.TrainJob) {
	t.Helper()
	eventually(t, j.Name+" to complete", func(g gomega.Gomega) {
		g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(j), j)).To(gomega.Succeed())
		g.Expect(j.Status.Conditions).To(gomega.HaveLen(1))
	})
	got := j.Status.Conditions[0]
	got.LastTransitionTime, got.Message = metav1.Time{}, ""
	check.Diff(t, metav1.Condition{Type: "Complete", Status: "True", Reason: "AllJobsCompleted"}, got,
		fmt.Sprintf("condition of %s", j.Name))
}

var eventually = check.Within(waitLimit, 50*time.Millisecond)

// trainerLeaderElection reads the leader election of upstream's manager from its deployment.
func trainerLeaderElection(t *testing.T) map[string]any {
	t.Helper()
	module, err := clusters.ModuleDir(t.Context(), "github.com/kubeflow/trainer/v2")
	check.Must(t, err)
	data, err := os.ReadFile(filepath.Join(module, "manifests/base/manager/controller_manager_config.yaml"))
	check.Must(t, err)
	var config struct {
		LeaderElection map[string]any `json:"leaderElection"`
	}
	check.Must(t, yaml.Unmarshal(data, &config))
	return config.LeaderElection
}
