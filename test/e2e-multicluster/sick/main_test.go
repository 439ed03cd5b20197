// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sick tests what a user of the hub, who has no right on any worker, learns of jobs that do not run or cannot
// run, with whole processes: a hub with webhooks and two workers.
package sick

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	fpga       = corev1.ResourceName("example.com/fpga")
	east, west = "east", "west"
	team       = "vision"
)

var (
	y = yard.Suite{
		Options: yard.Options{
			Workers:   []yard.Worker{worker(east), worker(west)},
			AgentArgs: []string{"--unschedulable-after=3s"},
			Progress:  yard.Print, HubWebhooks: true,
		},
		Timeout: 200 * time.Second, // A worker that has not answered in time is asked again after a minute.
		Poll:    100 * time.Millisecond,
	}
	// user is the kubeconfig of somebody who may view the team's namespace on the hub.
	user string
)

func worker(name string) yard.Worker {
	// As on GKE, nodes with devices are tainted, and an admission plugin lets pods that ask for the devices tolerate that.
	devices := clusters.NodeShape{
		Count: 1, NamePrefix: name + "-fpga", Capacity: corev1.ResourceList{fpga: resource.MustParse("4")},
		Taints: []corev1.Taint{{Key: string(fpga), Value: "present", Effect: corev1.TaintEffectNoSchedule}},
	}
	return yard.Worker{
		Name: name, Labels: map[string]string{"region": name},
		Nodes:         []clusters.NodeShape{yard.GPUNodes(name, 2, 8, "NVIDIA-H100"), devices},
		APIServerArgs: []string{"--enable-admission-plugins=ExtendedResourceToleration"},
		Failover:      v1alpha1.WorkerFailover{GracePeriod: &metav1.Duration{Duration: 5 * time.Second}},
	}
}

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	if stop, err = y.Start(ctx); err != nil {
		return stop, err
	}
	if user, err = viewer(ctx); err != nil {
		return stop, err
	}
	return stop, noGPUs(ctx, y.Workers[west])
}

// viewer makes the team's namespace, and writes a kubeconfig for somebody with the role view there.
func viewer(ctx context.Context) (string, error) {
	if err := y.Yard.Hub.ApplyKustomization(ctx, "../../../config/users"); err != nil {
		return "", err
	}
	account := types.NamespacedName{Namespace: team, Name: "ada"}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: account.Name}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: account.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: team, Name: account.Name}},
		},
	} {
		if err := y.Hub.Create(ctx, object); err != nil {
			return "", err
		}
	}
	kubeconfig, err := y.Yard.Hub.ServiceAccountKubeconfig(ctx, account, time.Hour)
	if err != nil {
		return "", err
	}
	path := filepath.Join(y.Yard.Hub.Dir, "viewer.kubeconfig")
	return path, os.WriteFile(path, kubeconfig, 0o600)
}

// noGPUs forbids GPUs in the team's namespace of a worker.
func noGPUs(ctx context.Context, worker client.Client) error {
	if err := worker.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}); err != nil {
		return err
	}
	return worker.Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "no-gpus"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse("0")}},
	})
}

// byHand is the time that the simulated pods of a job run: it is none, so that tests play the kubelet.
const byHand = "by-hand"

// sickness is a job that does not run.
type sickness struct {
	// job is the job, pinned to a worker if at is its name.
	job yard.Job
	at  string
	// change changes the job before it is submitted. make makes it sick.
	change func(*trainer.TrainJob)
	make   func(t *testing.T, job *trainer.TrainJob)
	// event is the reason of the one Event about it, empty for none.
	event string
	// words are what explain says.
	words []string
}

// TestSickJobs: a user who has no rights on workers learns from the hub why a job does not run, and what to do.
func TestSickJobs(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]sickness{
		"Image": {
			at: east, make: waits("ErrImagePull", `failed to resolve reference "registry.example.com/llm:v2": not found`),
			event: "ImagePullFailed",
			words: []string{"State: Starting on worker east (ImagePullFailed)", "registry.example.com/llm:v2", "To Do: check the name of the image"},
		},
		"Secret": {
			at: east, make: waits("CreateContainerConfigError", `secret "hf-token" not found`), event: "ContainerConfigError",
			words: []string{"Starting on worker east (ContainerConfigError)", `secret "hf-token" not found`, "Secrets and ConfigMaps are not copied"},
		},
		"Crash": {
			at: east, make: crashes, event: "CrashLoop",
			words: []string{"(CrashLoop)", "CUDA out of memory", "kubectl trainyard logs crash --previous"},
		},
		"NodeLost": {
			at: east, make: loses, event: "NodeLost",
			words: []string{"(NodeLost)", "the node has a NoExecute taint", "drain the worker or delete the Dispatch"},
		},
		"Unschedulable": {
			at: east, job: yard.Job{Nodes: 4}, change: apart, event: "Unschedulable",
			words: []string{"Starting on worker east (Unschedulable)", "anti-affinity", "admissionTimeout"},
		},
		"Quota": {
			at: west, job: yard.Job{GPUs: 1},
			words: []string{"State: Waiting (Rejected)", "exceeded quota", "To Do: change what the table of workers names"},
		},
		"NoRoom": {
			job:   yard.Job{Nodes: 3, GPUs: 8},
			words: []string{"State: Waiting (NoFit)", "lacks 8 nvidia.com/gpu", "To Do: wait until jobs end"},
		},
		"Suspended": {
			change: func(job *trainer.TrainJob) { job.Spec.Suspend = ptr.To(true) },
			words:  []string{"State: Suspended", "spec.suspend is true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // A Dispatch says only after 10 s that the copy does not run.
			job := is.submit(t, strings.ToLower(name))
			if is.make != nil {
				is.make(t, job)
			}
			expectWords(t, job, is.words...)
			if is.event != "" {
				expectUnhealthy(t, job, is.event)
			}
		})
	}
}

// TestSickWorker: what is known of a job on a worker that does not answer is shown as unknown.
func TestSickWorker(t *testing.T) {
	t.Parallel()
	is := sickness{at: west}
	job := is.submit(t, "away")
	waits("ErrImagePull", "not found")(t, job)
	expectUnhealthy(t, job, "ImagePullFailed")
	server := y.Yard.Workers[west].Process("kube-apiserver")
	signal := func(s syscall.Signal) {
		check.Must(t, server.Signal(s))
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	expectWords(t, job, "State: Lost with worker west", "Health: unknown: the worker does not answer; it last said ImagePullFailed")
	signal(syscall.SIGCONT)
	expectWords(t, job, "State: Starting on worker west (ImagePullFailed)")
}

// TestRecovery: the end of a trouble is reported, when the trouble has been shown for half a minute. A job that never
// had trouble has no condition. The jobs run on east, because TestSickWorker makes west silent.
func TestRecovery(t *testing.T) {
	t.Parallel()
	well := (&sickness{at: east, job: yard.Job{RunFor: clusters.RunForever}}).submit(t, "well")
	job := (&sickness{at: east}).submit(t, "recovers")
	waits("ErrImagePull", "not found")(t, job)
	expectUnhealthy(t, job, "ImagePullFailed")
	play(t, job, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodRunning
		for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
		}
		pod.Status.ContainerStatuses[0].Ready = true
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	})
	y.Eventually(t, func(g gomega.Gomega) {
		d := &v1alpha1.Dispatch{}
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
		healthy := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchHealthy)
		g.Expect(healthy).NotTo(gomega.BeNil())
		g.Expect(healthy.Status).To(gomega.Equal(metav1.ConditionTrue), healthy.Message)
		g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
	})
	expectWords(t, job, "State: Running on worker east", "Health: no trouble for")

	y.Eventually(t, func(g gomega.Gomega) {
		d := &v1alpha1.Dispatch{}
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(well), d)).To(gomega.Succeed())
		g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
		g.Expect(meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchHealthy)).To(gomega.BeNil())
	})
}

// submit creates the job on the hub, and deletes it when the test ends.
func (is *sickness) submit(t *testing.T, name string) *trainer.TrainJob {
	t.Helper()
	is.job.Namespace, is.job.Name = team, name
	if is.job.RunFor == "" {
		is.job.RunFor = byHand
	}
	job := is.job.TrainJob()
	if is.at != "" {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationClusters, "region="+is.at)
	}
	if is.change != nil {
		is.change(job)
	}
	check.Must(t, y.Hub.Create(t.Context(), job))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), job.DeepCopy()))) })
	return job
}

// expectWords waits until explain says all of these to the user.
func expectWords(t *testing.T, job *trainer.TrainJob, words ...string) {
	t.Helper()
	var text string
	y.Eventually(t, func(g gomega.Gomega) {
		answer, err := y.Plugin(t.Context(), "explain", job.Name, "-n", job.Namespace, "--kubeconfig", user)
		g.Expect(err).To(gomega.Succeed())
		text = string(answer)
		for _, words := range words {
			g.Expect(strings.Join(strings.Fields(text), " ")).To(gomega.ContainSubstring(words))
		}
	})
	t.Logf("kubectl trainyard explain %s\n%s", job.Name, text)
}

// expectUnhealthy waits until the Dispatch says why the job is not healthy, and the job has one Event about it.
func expectUnhealthy(t *testing.T, job *trainer.TrainJob, reason string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		d := &v1alpha1.Dispatch{}
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
		healthy := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchHealthy)
		g.Expect(healthy).NotTo(gomega.BeNil())
		g.Expect(healthy.Status).To(gomega.Equal(metav1.ConditionFalse))
		g.Expect(healthy.Reason).To(gomega.Equal(reason), healthy.Message)
		g.Expect(d.Status.Reason).To(gomega.Equal(reason))
		var events eventsv1.EventList
		g.Expect(y.Hub.List(t.Context(), &events, client.InNamespace(job.Namespace))).To(gomega.Succeed())
		told := 0
		for _, event := range events.Items {
			if event.Regarding.Name == job.Name && event.Reason == reason {
				told++
			}
		}
		g.Expect(told).To(gomega.Equal(1), "Events with reason %s", reason)
	})
}

// play makes the pods of a job on their worker say what a kubelet would.
func play(t *testing.T, job *trainer.TrainJob, say func(pod *corev1.Pod)) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		d := &v1alpha1.Dispatch{}
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
		g.Expect(d.Spec.Cluster).NotTo(gomega.BeEmpty())
		worker := y.Workers[string(d.Spec.Cluster)]
		var pods corev1.PodList
		g.Expect(worker.List(t.Context(), &pods, client.InNamespace(job.Namespace),
			client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: job.Name})).To(gomega.Succeed())
		g.Expect(pods.Items).To(gomega.HaveLen(int(ptr.Deref(job.Spec.Trainer.NumNodes, 1))))
		for i := range pods.Items {
			pod := &pods.Items[i]
			g.Expect(pod.Spec.NodeName).NotTo(gomega.BeEmpty())
			say(pod)
			g.Expect(worker.Status().Update(t.Context(), pod)).To(gomega.Succeed())
		}
	})
}

// container is the status of the pod's only container.
func container(pod *corev1.Pod, state corev1.ContainerState) *corev1.ContainerStatus {
	first := pod.Spec.Containers[0]
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: first.Name, Image: "registry.example.com/llm:v2", State: state}}
	return &pod.Status.ContainerStatuses[0]
}

// waits makes the containers of a job wait.
func waits(reason, message string) func(*testing.T, *trainer.TrainJob) {
	return func(t *testing.T, job *trainer.TrainJob) {
		t.Helper()
		play(t, job, func(pod *corev1.Pod) {
			container(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
		})
	}
}

// crashes makes the containers of a job crash again and again.
func crashes(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	play(t, job, func(pod *corev1.Pod) {
		status := container(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}})
		status.RestartCount = 4
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "CUDA out of memory"}
	})
}

// loses deletes the nodes of a job's pods.
func loses(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	play(t, job, func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager",
		})
	})
}

// apart gives the job pods of which a node takes only one. The hub does not look at such rules.
func apart(job *trainer.TrainJob) {
	patch := &job.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
	(*patch).Spec = &trainer.PodSpecPatch{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey:   corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{jobsetv1alpha2.JobSetNameKey: job.Name}},
		}},
	}}}
}

// TestChangeOfARunningJob: a change that would not reach the copy is refused, and the answer says what to do instead.
func TestChangeOfARunningJob(t *testing.T) {
	t.Parallel()
	job := (&sickness{at: east, job: yard.Job{RunFor: clusters.RunForever}}).submit(t, "changed")
	expectWords(t, job, "State: Running on worker east")
	_, err := y.Yard.Hub.Kubectl(t.Context(), "patch", "trainjob", job.Name, "-n", job.Namespace, "--type=json",
		`--patch=[{"op": "add", "path": "/spec/runtimePatches/-", "value": {"manager": "team.example.com/patch"}}]`)
	if err == nil {
		t.Fatal("the change was accepted")
	}
	t.Logf("kubectl patch: %v", err)
	for _, words := range []string{"spec.runtimePatches", "set spec.suspend to true"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("the answer does not say %q: %v", words, err)
		}
	}
}

// TestGangThatDoesNotStartMoves: a gang for whose pods its worker finds no node goes to another worker that has room,
// and stays where it is if there is none. Its policies are for all jobs, so it does not run beside other tests.
func TestGangThatDoesNotStartMoves(t *testing.T) {
	policy := &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "impatient"},
		Spec: v1alpha1.DispatchPolicySpec{
			Jobs:             v1alpha1.JobSelector{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"policy": "impatient"}}},
			Scoring:          []v1alpha1.Score{{Name: v1alpha1.ScorePreference, Weight: 1, Order: []v1alpha1.ClusterName{east, west}}},
			AdmissionTimeout: &metav1.Duration{Duration: 5 * time.Second},
		},
	}
	others := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "others"}, Spec: v1alpha1.DispatchPolicySpec{Priority: -1}}
	for _, object := range []client.Object{policy, others} { // With a policy, each job needs one.
		create(t, y.Hub, object)
	}
	for i := range 2 {
		create(t, y.Workers[east], blocker(fmt.Sprintf("%s-%d", east, i)))
	}
	impatient := func(job *trainer.TrainJob) {
		job.Labels = map[string]string{"policy": "impatient"}
		apart(job)
		terms := job.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Affinity
		terms.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels = map[string]string{"app": "blocker"}
	}
	stays := (&sickness{at: east, job: yard.Job{Nodes: 2, RunFor: clusters.RunForever}, change: impatient}).submit(t, "stays")
	moves := (&sickness{job: yard.Job{Nodes: 2, RunFor: clusters.RunForever}, change: impatient}).submit(t, "moves")
	y.Eventually(t, func(g gomega.Gomega) {
		d := &v1alpha1.Dispatch{}
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(moves), d)).To(gomega.Succeed())
		g.Expect(d.Spec.Cluster).To(gomega.BeEquivalentTo(west))
		g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
		g.Expect(d.Status.History).To(gomega.HaveLen(1))
		g.Expect(d.Status.History[0].Outcome).To(gomega.Equal(v1alpha1.OutcomeAdmissionTimeout))
		g.Expect(d.Status.Refusals).To(gomega.HaveLen(1), "the worker counts as one that has refused the job")
	})
	expectWords(t, moves, "State: Running on worker west", "east", "AdmissionTimeout")
	expectUnhealthy(t, stays, v1alpha1.ReasonUnschedulable)
	d := &v1alpha1.Dispatch{}
	check.Must(t, y.Hub.Get(t.Context(), client.ObjectKeyFromObject(stays), d))
	if d.Spec.Attempt != 1 || d.Spec.Eviction != nil {
		t.Errorf("a job that fits nowhere else is at attempt %d, and its eviction is %v", d.Spec.Attempt, d.Spec.Eviction)
	}
}

// blocker is a pod on a node. Pods with the rule of the test cannot run beside it.
func blocker(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: team, Name: "blocker-" + node, Labels: map[string]string{"app": "blocker"},
			Annotations: map[string]string{clusters.RunForAnnotation: clusters.RunForever},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "blocker", Image: "registry.example.com/blocker"}}},
	}
}

// create creates an object, which is deleted when the test ends.
func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) { // The namespace may be new there.
		g.Expect(c.Create(t.Context(), object)).To(gomega.Succeed())
	})
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(c.Delete(context.Background(), object))) })
}
