// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/ports"
	"github.com/trainyard/trainyard/test/stage"
)

// TestWebhooksOfAStandby: a manager that does not lead makes certificates, refuses what a worker would refuse, and
// gives new jobs of a namespace to the manager that leads. Jobs of others are not looked at. Its rights are enough.
func TestWebhooksOfAStandby(t *testing.T) {
	w := hub(t)
	leader, standby := w.startServing(t)

	path := filepath.Join(t.TempDir(), "job.json")
	check.Must(t, os.WriteFile(path, []byte(`{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"name":"j",
		"annotations":{"trainyard.dev/clusters":"region in"}},"spec":{"managedBy":"kueue.x-k8s.io/multikueue",
		"runtimeRef":{"name":"torch-distributed"},"trainer":{"env":[{"name":"PET_NNODES","value":"2"}]}}}`), 0o600))
	_, err := w.hub.Kubectl(t.Context(), "apply", "--dry-run=server", "-f", path)
	for _, words := range []string{
		"spec.trainer.env[0].name: Invalid value: \"PET_NNODES\": reserved: the torch policy of runtime \"torch-distributed\" sets it",
		"metadata.annotations[trainyard.dev/clusters]: Invalid value: \"region in\": must be a label selector",
	} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("kubectl apply --dry-run=server does not say %q: %v", words, err)
		}
	}
	for _, name := range []string{"torch-distributed", "deepspeed-distributed"} {
		good := newJob("default", "good", func(j *trainer.TrainJob) { j.Spec.RuntimeRef.Name = name })
		w.warnings.Take()
		check.Equal(t, nil, w.admin.Create(t.Context(), good, client.DryRunAll), "%s", name)
		if texts := w.warnings.Take(); !strings.Contains(texts, "no WorkerCluster is registered") || strings.Contains(texts, "cannot check") {
			t.Errorf("%s: warnings %q", name, texts)
		}
	}
	check.Must(t, w.admin.Create(t.Context(), newJob("default", "local", unmanaged, reservedEnv, func(j *trainer.TrainJob) {
		j.Spec.RuntimeRef.Name = "none"
	})))
	check.Equal(t, "", w.warnings.Take(), "a job of the hub's own controller has warnings")

	for _, m := range []*stage.Program{leader, standby} {
		if log := m.Log(t); strings.Contains(log, "forbidden") || strings.Contains(log, "not leading") {
			t.Errorf("%s lacks rights:\n%s", m.Name, log)
		}
	}
}

// TestUnmodifiedClients: new jobs of a namespace with the label are dispatched, unless they name a manager or have to
// stay on the hub.
func TestUnmodifiedClients(t *testing.T) {
	w := hub(t)
	w.startServing(t)
	w.namespace(t, "unmodified")
	w.warnings.Take()
	adopted := newJob("unmodified", "sdk", unmanaged)
	check.Must(t, w.admin.Create(t.Context(), adopted))
	if got := *adopted.Spec.ManagedBy; got != v1alpha1.ManagedByMultiKueue || adopted.Annotations[v1alpha1.AnnotationDispatch] != v1alpha1.DispatchByNamespace {
		t.Errorf("an unmodified job has spec.managedBy %q and annotations %v", got, adopted.Annotations)
	}
	if texts := w.warnings.Take(); !strings.Contains(texts, `spec.managedBy: set to "kueue.x-k8s.io/multikueue", because namespace "unmodified"`) {
		t.Errorf("warnings %q", texts)
	}
	eventually(t, "the leader to look at the job", func(g gomega.Gomega) {
		g.Expect(w.admin.Get(t.Context(), client.ObjectKeyFromObject(adopted), &v1alpha1.Dispatch{})).To(gomega.Succeed())
	})
	if err := w.admin.Create(t.Context(), newJob("unmodified", "bad", unmanaged, reservedEnv)); !apierrors.IsInvalid(err) {
		t.Errorf("an adopted job is not checked: %v", err)
	}
	w.warnings.Take()
	for name, change := range map[string]func(*trainer.TrainJob){
		"stays": func(j *trainer.TrainJob) {
			unmanaged(j)
			j.Annotations = map[string]string{v1alpha1.AnnotationDispatch: v1alpha1.DispatchNo}
		},
		"explicit": func(j *trainer.TrainJob) {
			j.Spec.ManagedBy, j.Annotations = new(v1alpha1.ManagedByBuiltIn), map[string]string{v1alpha1.AnnotationDispatch: v1alpha1.DispatchNo}
		},
	} {
		job := newJob("unmodified", name, change)
		check.Must(t, w.admin.Create(t.Context(), job))
		check.Equal(t, v1alpha1.ManagedByBuiltIn, *job.Spec.ManagedBy, "%s: spec.managedBy", name)
	}
	check.Equal(t, "", w.warnings.Take(), "jobs that stay have warnings")
}

// TestChangeOfAPlacedJob: the API server refuses a change that would reach no copy, and takes it when the job is
// suspended.
func TestChangeOfAPlacedJob(t *testing.T) {
	w := hub(t)
	w.holdLease(t) // No controller looks at the Dispatch.
	w.start(t, w.serving()...)
	w.awaitWebhook(t)
	job := newJob("default", "placed")
	check.Must(t, w.admin.Create(t.Context(), job))
	check.Must(t, w.admin.Create(t.Context(), &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name},
		Spec:       v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{Name: job.Name, UID: job.UID}, Cluster: "east", Attempt: 1},
	}))
	patched := job.DeepCopy()
	patched.Spec.RuntimePatches = []trainer.RuntimePatch{{Manager: "acme.io/tuner"}}
	eventually(t, "the change to be refused", func(g gomega.Gomega) {
		err := w.admin.Update(t.Context(), patched.DeepCopy(), client.DryRunAll)
		g.Expect(err).To(gomega.MatchError(gomega.ContainSubstring(
			`spec.runtimePatches: Forbidden: the entries of acme.io/tuner may change only while the TrainJob is suspended: its copy on worker "east"`)))
	})
	patched.Spec.Suspend = new(true)
	check.Must(t, w.admin.Update(t.Context(), patched))
}

// TestWebhooksFailOpen: while no manager runs, jobs are accepted at once, and whoever creates a job that should have
// been dispatched learns that it is not.
func TestWebhooksFailOpen(t *testing.T) {
	w := hub(t)
	_, standby := w.startServing(t)
	w.namespace(t, "open")
	check.Must(t, standby.Stop())
	w.warnings.Take()
	check.Must(t, w.admin.Create(t.Context(), newJob("open", "unchecked", reservedEnv)))
	check.Equal(t, "", w.warnings.Take(), "warnings")
	job := newJob("open", "unmodified", unmanaged)
	check.Must(t, w.admin.Create(t.Context(), job))
	check.Equal(t, v1alpha1.ManagedByBuiltIn, *job.Spec.ManagedBy, "somebody has set")
	if texts := w.warnings.Take(); !strings.Contains(texts, "this TrainJob is not dispatched although its namespace has the label trainyard.dev/dispatch") {
		t.Errorf("warnings %q", texts)
	}
}

// TestDispatchesWithoutCertificates: a manager that cannot make certificates is ready, looks at jobs, and says in its
// log what it does not do. When it can make them, it serves webhooks without a restart.
func TestDispatchesWithoutCertificates(t *testing.T) {
	w := hub(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: webhookService + "-cert"}}
	check.Must(t, w.admin.Delete(t.Context(), secret))
	restore := func() error { // As config/webhook-hub has it.
		return client.IgnoreAlreadyExists(w.admin.Create(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: secret.Namespace, Name: secret.Name,
		}}))
	}
	t.Cleanup(func() { check.Must(t, restore()) })
	m := w.start(t, w.serving()...)
	eventually(t, "log", func(g gomega.Gomega) {
		g.Expect(m.Log(t)).To(gomega.And(gomega.ContainSubstring("Admission webhooks are not served now"),
			gomega.ContainSubstring(secret.Name)))
	})
	job := newJob("default", "without-certificates")
	check.Must(t, w.admin.Create(t.Context(), job))
	eventually(t, "the job to be looked at", func(g gomega.Gomega) {
		g.Expect(w.admin.Get(t.Context(), client.ObjectKeyFromObject(job), &v1alpha1.Dispatch{})).To(gomega.Succeed())
	})
	check.Must(t, ports.Ready(t.Context(), m.Health))

	check.Must(t, restore())
	w.awaitWebhook(t)
}

// TestManagerMayOnlyTry: whoever has the manager's credentials can run no pods on the hub with them.
func TestManagerMayOnlyTry(t *testing.T) {
	w := hub(t)
	config, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig)
	check.Must(t, err)
	asManager, err := client.New(config, client.Options{Scheme: w.admin.Scheme()})
	check.Must(t, err)
	pod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	jobSet := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "js"}}
	jobSet.Spec.ReplicatedJobs = []jobsetv1alpha2.ReplicatedJob{{Name: "node", Replicas: 1}}
	jobSet.Spec.ReplicatedJobs[0].Template.Spec.Template = pod
	jobSet.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pt"}, Template: pod}
	for _, object := range []client.Object{jobSet, template} {
		check.Equal(t, nil, asManager.Create(t.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll),
			"dry run")
		eventually(t, "the policy to refuse", func(g gomega.Gomega) {
			copy := object.DeepCopyObject().(client.Object)
			err := asManager.Create(t.Context(), copy)
			if err == nil {
				_ = w.admin.Delete(t.Context(), copy)
			}
			g.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("in dry runs only")))
		})
		check.Must(t, w.admin.Create(t.Context(), object.DeepCopyObject().(client.Object))) // Others may.
		check.Must(t, w.admin.Delete(t.Context(), object))
	}
	own := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: pod.Spec}
	if err := asManager.Create(t.Context(), own, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("the manager may create pods: %v", err)
	}
}
