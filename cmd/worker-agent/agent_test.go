// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

func TestTorchDistributedCompletes(t *testing.T) {
	setUp(t)
	a := startAgent(t)
	j := createJob(t, "torch")
	awaitComplete(t, j)
	want := []trainer.JobStatus{{
		Name: "node", Ready: new(int32(0)), Succeeded: new(int32(1)), Failed: new(int32(0)), Active: new(int32(0)), Suspended: new(int32(0)),
	}}
	check.Diff(t, want, j.Status.JobsStatus, "jobsStatus")
	if got, err := fetch(a.Health, "/healthz"); err != nil || got != "ok" {
		t.Errorf("/healthz: got %q, error %v", got, err)
	}
	a.awaitMetric(t, `trainyard_trainjobs_finished_total{condition="Complete",reason="AllJobsCompleted"} 1`)
	a.checkRights(t)
	if !strings.Contains(a.Log(t), "Admission webhooks are not served; to serve them set --webhook-cert-dir or --webhook-service") {
		t.Error("the log does not say that no webhooks are served")
	}
}

// TestMPIWorksWithStrippedCache checks MPI with the agent's cache, which strips Secrets and most ConfigMaps.
func TestMPIWorksWithStrippedCache(t *testing.T) {
	setUp(t)
	startAgent(t)
	j := createJob(t, "mpi", func(j *trainer.TrainJob) {
		j.Spec.RuntimeRef.Name = "deepspeed-distributed"
		j.Spec.Suspend = new(true)
	})
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: j.Namespace, Name: "mpi-mpi-ssh-auth"}
	eventually(t, "SSH keys", func(g gomega.Gomega) { g.Expect(world.client.Get(t.Context(), key, secret)).To(gomega.Succeed()) })
	first := secret.UID
	check.Must(t, world.client.Delete(t.Context(), secret))
	eventually(t, "SSH keys to be made again", func(g gomega.Gomega) {
		g.Expect(world.client.Get(t.Context(), key, secret)).To(gomega.Succeed())
		g.Expect(secret.UID).NotTo(gomega.Equal(first))
		g.Expect(secret.Data).To(gomega.And(gomega.HaveKey("ssh-privatekey"), gomega.HaveKey("ssh-publickey")))
	})
	hosts := &corev1.ConfigMap{}
	check.Must(t, world.client.Get(t.Context(), client.ObjectKey{Namespace: j.Namespace, Name: "mpi-mpi-hostfile"}, hosts))
	want := "mpi-node-0-0.mpi slots=1\nmpi-launcher-0-0.mpi slots=1\n"
	check.Diff(t, want, hosts.Data["hostfile"], "hostfile")
	eventually(t, "resume", func(g gomega.Gomega) {
		g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(j), j)).To(gomega.Succeed())
		j.Spec.Suspend = new(false)
		g.Expect(world.client.Update(t.Context(), j)).To(gomega.Succeed())
	})
	eventually(t, "MPI job to complete", func(g gomega.Gomega) {
		g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(j), j)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionTrue(j.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue())
	})
}

func TestOneLeadsAndTheOtherTakesOver(t *testing.T) {
	setUp(t)
	// Long enough that a busy machine lets the leader renew: an agent that lost its lease ends, and nobody is left after
	// the kill. The standby waits as long for the end of a lease that nobody gives back.
	lease := []string{"--leader-election-lease-duration=30s", "--leader-election-renew-deadline=25s"}
	all := []*agent{startAgent(t, lease...), startAgent(t, lease...)}
	var leader, standby *agent
	eventually(t, "exactly one agent to lead", func(g gomega.Gomega) {
		first, second := all[0].isLeader(g), all[1].isLeader(g)
		g.Expect(first).NotTo(gomega.Equal(second))
		leader, standby = all[0], all[1]
		if second {
			leader, standby = all[1], all[0]
		}
	})
	awaitComplete(t, createJob(t, "before-kill"))
	check.Must(t, leader.Kill())
	j := createJob(t, "after-kill")
	eventually(t, "the standby to lead", func(g gomega.Gomega) { g.Expect(standby.isLeader(g)).To(gomega.BeTrue()) })
	awaitComplete(t, j)
}

func TestStopReleasesLease(t *testing.T) {
	setUp(t)
	a := startAgent(t)
	eventually(t, "agent to lead", func(g gomega.Gomega) { g.Expect(a.isLeader(g)).To(gomega.BeTrue()) })
	check.Must(t, a.Signal(syscall.SIGTERM))
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	check.Equal(t, nil, a.Wait(ctx), "exit")
	check.Equal(t, "", leaseHolder(t), "the lease is still held by")
}

// TestMissingCRDsAreAwaited checks that an agent without its CRDs is alive, names them, and works as soon as they are
// there.
func TestMissingCRDsAreAwaited(t *testing.T) {
	setUp(t)
	bare, err := clusters.Start(t.Context(), clusters.Options{Name: "bare"})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, bare.Stop()) })
	a := &stage.Program{Health: freeAddress(t)}
	a.Process, err = bare.Run(t.Context(), "worker-agent", world.binary, "--kubeconfig="+bare.KubeconfigPath,
		"--health-probe-bind-address="+a.Health, "--metrics-bind-address=0", "--leader-elect=false")
	check.Must(t, err)
	const (
		trainerCRDs = "clustertrainingruntimes.trainer.kubeflow.org/v1alpha1, trainingruntimes.trainer.kubeflow.org/v1alpha1, " +
			"trainjobs.trainer.kubeflow.org/v1alpha1 (install Kubeflow Trainer's CRDs: kubectl apply"
		jobSetCRD = "jobsets.jobset.x-k8s.io/v1alpha2 (install JobSet: kubectl apply"
	)
	lacks := func(want types.GomegaMatcher) {
		t.Helper()
		eventually(t, "the reason why the agent waits", func(g gomega.Gomega) {
			reason, err := fetch(a.Health, "/readyz")
			g.Expect(err).To(gomega.MatchError("503 Service Unavailable"))
			g.Expect(reason).To(want)
			g.Expect(a.Log(t)).To(gomega.ContainSubstring(strings.TrimSpace(reason)))
			g.Expect(fetch(a.Health, "/healthz")).To(gomega.Equal("ok"))
		})
	}
	lacks(gomega.And(gomega.ContainSubstring(trainerCRDs), gomega.ContainSubstring(jobSetCRD)))
	installCRDs(t, bare, clusters.JobSetCRDs)
	lacks(gomega.And(gomega.ContainSubstring(trainerCRDs), gomega.Not(gomega.ContainSubstring(jobSetCRD))))
	installCRDs(t, bare, clusters.TrainerCRDs)
	eventually(t, "the agent to be ready", func(g gomega.Gomega) {
		g.Expect(fetch(a.Health, "/readyz")).To(gomega.Equal("ok"))
	})
}

func installCRDs(t *testing.T, cluster *clusters.Cluster, files clusters.ModuleFile) {
	t.Helper()
	paths, err := clusters.ModulePaths(t.Context(), files)
	check.Must(t, err)
	check.Must(t, cluster.InstallCRDs(t.Context(), paths...))
}

// TestNoPodOfAJob: a job whose pods a quota refuses says so in the Job controller's words. It may be too early for the
// Event when the trouble begins, and the condition follows.
func TestNoPodOfAJob(t *testing.T) {
	setUp(t)
	startAgent(t, "--extended-conditions", "--no-pod-ready-after=1s", "--webhook-bind-address=0") // A webhook would refuse the job.
	j := createJob(t, "refused", func(j *trainer.TrainJob) { j.Spec.Suspend = new(true) })
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: "no-pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	check.Must(t, world.client.Create(t.Context(), quota))
	t.Cleanup(func() { check.Must(t, world.client.Delete(context.Background(), quota)) })
	eventually(t, "quota to count", func(g gomega.Gomega) {
		g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(quota), quota)).To(gomega.Succeed())
		g.Expect(quota.Status.Hard).NotTo(gomega.BeEmpty())
		g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(j), j)).To(gomega.Succeed())
		j.Spec.Suspend = new(false)
		g.Expect(world.client.Update(t.Context(), j)).To(gomega.Succeed())
	})
	eventually(t, "words of the Event", func(g gomega.Gomega) {
		g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(j), j)).To(gomega.Succeed())
		stalled := meta.FindStatusCondition(j.Status.Conditions, "Stalled")
		g.Expect(stalled).NotTo(gomega.BeNil())
		g.Expect(stalled.Reason).To(gomega.Equal("NoPodReady"))
		g.Expect(stalled.Message).To(gomega.ContainSubstring("no pod exists; FailedCreate: exceeded quota: no-pods"))
	})
}

// TestExtendedConditions checks that a job whose pods fit on no node reports that, and continues when there is a node.
func TestExtendedConditions(t *testing.T) {
	setUp(t)
	a := startAgent(t, "--extended-conditions", "--unschedulable-after=1s")
	j := createJob(t, "extended", func(j *trainer.TrainJob) {
		j.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/fpga": resource.MustParse("1")}}
		j.Spec.Trainer.ResourcesPerNode.Limits = j.Spec.Trainer.ResourcesPerNode.Requests
		j.Spec.RuntimePatches = []trainer.RuntimePatch{runForever()}
	})
	await := func(kind string, status metav1.ConditionStatus, reason, words string) {
		t.Helper()
		eventually(t, kind+" "+reason, func(g gomega.Gomega) {
			g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(j), j)).To(gomega.Succeed())
			c := meta.FindStatusCondition(j.Status.Conditions, kind)
			g.Expect(c).NotTo(gomega.BeNil())
			g.Expect([]string{string(c.Status), c.Reason}).To(gomega.Equal([]string{string(status), reason}))
			g.Expect(c.Message).To(gomega.ContainSubstring(words))
			if kind != trainer.TrainJobComplete { // It is as upstream sets it.
				g.Expect(c.ObservedGeneration).To(gomega.Equal(j.Generation))
			}
		})
	}
	await("ResourcesCreated", metav1.ConditionTrue, "ResourcesCreated", "exist")
	await("Started", metav1.ConditionFalse, "WaitingForPods", "trainer")
	await("Stalled", metav1.ConditionTrue, "Unschedulable", "example.com/fpga")
	err := world.cluster.AddNodes(t.Context(), clusters.NodeShape{
		Count: 2, NamePrefix: "fpga", Capacity: corev1.ResourceList{"example.com/fpga": resource.MustParse("1")},
	})
	check.Must(t, err)
	await("Started", metav1.ConditionTrue, "Trainer", "") // If no pass sees that a job runs, the job has no start time.
	endPods(t, j)
	await("Complete", metav1.ConditionTrue, "AllJobsCompleted", "")
	await("Stalled", metav1.ConditionFalse, "NotRunning", "")
	for _, metric := range []string{
		`trainyard_trainjob_stalls_total{reason="Unschedulable"} 1`, "trainyard_trainjob_start_seconds_count 1",
		"trainyard_trainjob_jobset_seconds_count 1", `trainyard_trainjob_finish_seconds_count{condition="Complete"} 1`,
	} {
		a.awaitMetric(t, metric)
	}
}

// endPods makes the pods of a job that run forever succeed.
func endPods(t *testing.T, j *trainer.TrainJob) {
	t.Helper()
	pods := podsOf(gomega.NewWithT(t), t, j)["node"]
	for i := range pods {
		pod := &pods[i]
		before := pod.DeepCopy()
		pod.Status.Phase = corev1.PodSucceeded
		check.Must(t, world.client.Status().Patch(t.Context(), pod, client.MergeFrom(before)))
	}
}

// TestCapacityReport checks that the agent can report with the rights of config/worker-agent.
func TestCapacityReport(t *testing.T) {
	setUp(t)
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("CapacityReport"))
	report.SetName(v1alpha1.CapacityReportName)
	check.Must(t, client.IgnoreNotFound(world.client.Delete(t.Context(), report)))
	a := startAgent(t)
	eventually(t, "a report of both nodes", func(g gomega.Gomega) {
		g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(report), report)).To(gomega.Succeed())
		nodes := int64(0)
		groups, _, _ := unstructured.NestedSlice(report.Object, "nodeGroups")
		for _, group := range groups {
			rows, _, _ := unstructured.NestedSlice(group.(map[string]any), "rows")
			for _, row := range rows {
				nodes += row.(map[string]any)["nodes"].(int64)
			}
		}
		g.Expect(nodes).To(gomega.BeNumerically(">=", 2))
	})
	a.checkRights(t)
}

// TestToyTrain runs the sample of test/training with the real JobSet and without the program: its pods must have the
// environment and the host names that the program derives from it.
func TestToyTrain(t *testing.T) {
	setUp(t)
	startAgent(t)
	objects, err := clusters.ReadObjects("../../test/training/toy-train.yaml")
	check.Must(t, err)
	for _, object := range objects {
		unstructured.RemoveNestedField(object.Object, "spec", "managedBy") // There is no hub here.
		check.Must(t, world.cluster.ApplyObjects(t.Context(), object))
	}
	j := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "toy-train"}}
	var pods []corev1.Pod
	eventually(t, "pods of "+j.Name, func(g gomega.Gomega) {
		pods = podsOf(g, t, j)["node"]
		g.Expect(pods).To(gomega.HaveLen(2))
	})
	for rank, pod := range pods {
		if want := fmt.Sprintf("toy-train-node-0-%d.toy-train", rank); host(pod) != want {
			t.Errorf("rank %d is %s, want %s", rank, host(pod), want)
		}
		values := env(pod)
		for name, want := range map[string]string{
			"PET_NNODES": "2", "PET_NODE_RANK": fmt.Sprint(rank), "PET_NPROC_PER_NODE": "1",
			"PET_MASTER_ADDR": "toy-train-node-0-0.toy-train", "PET_MASTER_PORT": "29500",
		} {
			check.Equal(t, want, values[name], "rank %d has %s", rank, name)
		}
		// The arguments name this label by its field path.
		check.Equal(t, "toy-train", pod.Labels["jobset.sigs.k8s.io/jobset-name"],
			"rank %d writes its checkpoints for", rank)
	}
	eventually(t, j.Name+" to complete", func(g gomega.Gomega) {
		g.Expect(conditionsOf(g, t, j)).To(gomega.Equal("Complete=True"))
	})
}
