// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/links"
	"github.com/trainyard/trainyard/test/yard"
)

// kubeconfig returns a new kubeconfig for a worker, with a token of its own.
func (s *scenario) kubeconfig(worker string) string {
	s.Helper()
	data, err := w.WorkerKubeconfig(s.Context(), w.Yard.Workers[worker])
	check.Must(s, err)
	return string(data)
}

// secretOf is the Secret with a worker's kubeconfig.
func secretOf(worker string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "trainyard-system", Name: worker + "-kubeconfig"}}
}

// readKubeconfig is what is in the Secret now.
func readKubeconfig(g gomega.Gomega, worker string) string {
	secret := secretOf(worker)
	g.Expect(w.Hub.Get(context.Background(), client.ObjectKeyFromObject(secret), secret)).To(gomega.Succeed())
	return string(secret.Data["kubeconfig"])
}

// give writes a kubeconfig into a worker's Secret.
func (s *scenario) give(worker, kubeconfig string) {
	s.Helper()
	secret := secretOf(worker)
	check.Must(s, w.Hub.Get(context.Background(), client.ObjectKeyFromObject(secret), secret))
	secret.Data = map[string][]byte{"kubeconfig": []byte(kubeconfig)}
	check.Must(s, w.Hub.Update(context.Background(), secret))
}

// giveForNow writes a kubeconfig into a worker's Secret until the test ends.
func (s *scenario) giveForNow(worker, kubeconfig string) {
	s.Helper()
	before := readKubeconfig(gomega.NewWithT(s), worker)
	s.Cleanup(func() { s.give(worker, before) })
	s.give(worker, kubeconfig)
}

// fingerprint waits until the manager uses other credentials for a worker than before, which it says in its log.
func (s *scenario) swapped(count int) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		log, err := os.ReadFile(w.Yard.Hub.Process("manager").LogPath)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(strings.Count(string(log), "Credentials of worker swapped")).To(gomega.BeNumerically(">=", count))
	})
}

func (s *scenario) swaps() int {
	s.Helper()
	log, err := os.ReadFile(w.Yard.Hub.Process("manager").LogPath)
	check.Must(s, err)
	return strings.Count(string(log), "Credentials of worker swapped")
}

// The Secret gets a new token while jobs run: no job is written, and everything continues with the new token.
func TestFaultSecretRotated(t *testing.T) {
	s, worker := with(t)
	job := s.submit(clusters.RunForever, on(worker))
	s.settles(job)
	fresh := s.kubeconfig(worker)
	before, swaps := s.versions(job), s.swaps()
	s.giveForNow(worker, fresh)
	s.swapped(swaps + 1)
	s.ends(s.submit("1s", on(worker)))
	if after := s.versions(job); after != before {
		t.Errorf("something was written because the token is new: from %s to %s", before, after)
	}
}

// A worker's kubeconfig file becomes bad while a job runs, then good again. The status says so, and it is no loss.
func TestFaultFileRotated(t *testing.T) {
	s, worker := patient(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	good := s.kubeconfig(worker)
	write := func(content string) {
		check.Must(t, os.WriteFile(file, []byte(content), 0o600))
	}
	connect := func(connection v1alpha1.Connection) {
		err := w.EditWorker(context.Background(), worker, func(object *v1alpha1.WorkerCluster) { object.Spec.Connection = connection })
		check.Must(t, err)
	}
	write(good)
	t.Cleanup(func() {
		connect(v1alpha1.Connection{KubeconfigSecretRef: &v1alpha1.SecretReference{Name: worker + "-kubeconfig"}})
	})
	connect(v1alpha1.Connection{KubeconfigPath: file})
	job := s.submit("8s", on(worker))
	s.Runs(job, worker, 1)
	write(strings.Replace(good, "token: ", "token: x", 1))
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonCredentialsInvalid, "401")
	write(s.kubeconfig(worker))
	s.ready(worker)
	s.ends(job, s.submit("1s", on(worker)))
	s.Attempt(job, 1)
}

// The authority in the kubeconfig is not the server's. The status says so, and a job stays until it is right again.
func TestFaultAuthorityChanged(t *testing.T) {
	s, worker := patient(t)
	job := s.submit("8s", on(worker), failover(v1alpha1.FailoverHold))
	s.Runs(job, worker, 1)
	_, authority, _ := strings.Cut(readKubeconfig(gomega.NewWithT(t), south), "certificate-authority-data: ")
	authority, _, _ = strings.Cut(authority, "\n")
	before := readKubeconfig(gomega.NewWithT(t), worker)
	_, own, _ := strings.Cut(before, "certificate-authority-data: ")
	own, _, _ = strings.Cut(own, "\n")
	s.giveForNow(worker, strings.Replace(before, own, authority, 1))
	s.fault(worker, func(l *links.Link) error { l.Cut(); return nil })
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonUnreachable, "certificate authority")
	s.give(worker, before)
	s.ready(worker)
	s.ends(job)
	s.Attempt(job, 1)
}

// The worker takes all rights from the hub's user while a job runs and another job comes. The worker is not lost, and
// everything continues when the rights are back.
func TestFaultRightsRevoked(t *testing.T) {
	s, worker := patient(t)
	job := s.submit("5s", on(worker))
	s.Runs(job, worker, 1)
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "trainyard-hub"}}
	check.Must(t, w.Workers[worker].Get(t.Context(), client.ObjectKeyFromObject(binding), binding))
	restore := func() {
		again := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: binding.Name}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}
		check.Must(t, client.IgnoreAlreadyExists(w.Workers[worker].Create(context.Background(), again)))
	}
	t.Cleanup(restore)
	check.Must(t, w.Workers[worker].Delete(t.Context(), binding))
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonCredentialsInvalid, "forbid")
	late := s.submit("1s", on(worker))
	restore()
	s.ready(worker)
	s.ends(job, late)
	s.Attempt(job, 1)
}

// The worker takes away the right to create TrainJobs: it says so before the job is placed, and the next worker gets the job.
func TestFaultRightsRevokedHalfWay(t *testing.T) {
	s, worker := with(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "trainyard-hub"}}
	check.Must(t, w.Workers[worker].Get(t.Context(), client.ObjectKeyFromObject(role), role))
	rules := role.Rules
	t.Cleanup(func() {
		patch(s, w.Workers[worker], role, func(role *rbacv1.ClusterRole) { role.Rules = rules })
	})
	runs := s.submit("4s", on(worker))
	s.Runs(runs, worker, 1)
	patch(s, w.Workers[worker], role, func(role *rbacv1.ClusterRole) {
		role.Rules = nil
		for _, rule := range rules {
			if slices.Contains(rule.Resources, "trainjobs") {
				rule.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool { return verb == "create" })
			}
			role.Rules = append(role.Rules, rule)
		}
	})
	job := s.submit("1s", on(worker, south))
	s.ends(job, runs)
	s.Attempt(job, 1)
	// The worker said no to a dry run, so the job did not need to be there.
	g := gomega.NewWithT(t)
	var events eventsv1.EventList
	g.Expect(w.Hub.List(t.Context(), &events, client.InNamespace(job.Namespace))).To(gomega.Succeed())
	g.Expect(events.Items).To(gomega.ContainElement(gomega.And(
		gomega.HaveField("Regarding.UID", job.UID), gomega.HaveField("Note", gomega.ContainSubstring("forbidden")))))
}

// The kubeconfigs of two workers are swapped while jobs run on both. The manager writes to neither worker. When each
// worker has its own kubeconfig again, everything continues.
func TestFaultKubeconfigsSwapped(t *testing.T) {
	s := alone(t)
	jobs := map[string]*trainer.TrainJob{west: s.submit("10s", on(west)), east: s.submit("10s", on(east))}
	for worker, job := range jobs {
		s.Runs(job, worker, 1)
	}
	g := gomega.NewWithT(t)
	ofWest, ofEast := readKubeconfig(g, west), readKubeconfig(g, east)
	s.giveForNow(west, ofEast)
	s.giveForNow(east, ofWest)
	for _, worker := range []string{west, east} {
		s.notReady(worker, v1alpha1.ReasonIdentityChanged, v1alpha1.ReasonDuplicate)
	}
	late := s.submit("1s", on(west))
	s.ends(s.submit("1s", on(south)))
	for _, worker := range []string{west, east} {
		err := w.Workers[worker].Get(t.Context(), client.ObjectKeyFromObject(late), &trainer.TrainJob{})
		if client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("a copy on %s, of which nobody knows which it is: %v", worker, err)
		}
	}
	s.give(west, ofWest)
	s.give(east, ofEast)
	s.ready(west)
	s.ready(east)
	s.ends(jobs[west], jobs[east], late)
	s.Attempt(jobs[west], 1)
	s.Attempt(jobs[east], 1)
}

// crds are the directories of the CRDs of a worker, or of a hub.
func crds(t *testing.T, own clusters.ModuleFile) []string {
	t.Helper()
	dirs, err := clusters.ModulePaths(t.Context(), clusters.TrainerCRDs, clusters.JobSetCRDs, own)
	check.Must(t, err)
	return dirs
}

// acceptIdentity does what an admin does after a look at the cluster.
func (s *scenario) acceptIdentity(worker string, id types.UID) {
	s.Helper()
	err := w.EditWorker(context.Background(), worker, func(object *v1alpha1.WorkerCluster) {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1alpha1.AnnotationAcceptIdentity, string(id))
	})
	if err != nil {
		s.Error(err)
	}
}

// clusterID is the UID of the namespace kube-system.
func clusterID(t *testing.T, c client.Reader) types.UID {
	t.Helper()
	namespace := &corev1.Namespace{}
	check.Must(t, c.Get(context.Background(), client.ObjectKey{Name: metav1.NamespaceSystem}, namespace))
	return namespace.UID
}

// A worker is created again under its name, while the old cluster runs a job: the new cluster does not run the job.
func TestFaultWorkerRecreated(t *testing.T) {
	s, worker := patient(t)
	job := s.submit("15s", on(worker))
	s.Runs(job, worker, 1)
	again, err := clusters.Start(t.Context(), clusters.Options{Name: "again", ControllerManager: true, CRDs: crds(t, clusters.WorkerCRDs)})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, again.Stop()) })
	there, err := yard.NewClient(again)
	check.Must(t, err)
	kubeconfig, err := again.KubeconfigBytes()
	check.Must(t, err)
	own := readKubeconfig(gomega.NewWithT(t), worker)
	s.giveForNow(worker, string(kubeconfig))
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonIdentityChanged)
	s.Cleanup(func() { s.acceptIdentity(worker, clusterID(t, w.Workers[worker])) })
	s.acceptIdentity(worker, clusterID(t, there))
	s.ready(worker)
	// The new cluster works: it would get the waiting jobs.
	s.Eventually(func(g gomega.Gomega) {
		object := &v1alpha1.WorkerCluster{}
		g.Expect(w.Hub.Get(t.Context(), client.ObjectKey{Name: worker}, object)).To(gomega.Succeed())
		g.Expect(object.Status.ClusterID).To(gomega.Equal(clusterID(t, there)))
	})
	s.ends(s.submit("1s", on(south)))
	var copies trainer.TrainJobList
	check.Must(t, there.List(t.Context(), &copies))
	if len(copies.Items) > 0 {
		t.Errorf("the job of the old cluster was started on the new one: %v", copies.Items)
	}
	s.give(worker, own)
	s.acceptIdentity(worker, clusterID(t, w.Workers[worker]))
	s.ready(worker)
	s.ends(job)
	s.Attempt(job, 1)
}

// Two hubs have the same worker. Each hub manages its own copies, also where the names are the same.
func TestFaultTwoHubs(t *testing.T) {
	s, worker := with(t)
	second, err := clusters.Start(t.Context(), clusters.Options{Name: "second-hub", CRDs: crds(t, clusters.HubCRDs)})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, second.Stop()) })
	hub, err := yard.NewClient(second)
	check.Must(t, err)
	kubeconfig := readKubeconfig(gomega.NewWithT(t), worker)
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "trainyard-system"}},
		&corev1.Secret{ObjectMeta: secretOf(worker).ObjectMeta, StringData: map[string]string{"kubeconfig": kubeconfig}},
		&v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: worker}, Spec: v1alpha1.WorkerClusterSpec{
			Connection: v1alpha1.Connection{KubeconfigSecretRef: &v1alpha1.SecretReference{Name: worker + "-kubeconfig"}},
		}},
	} {
		check.Must(t, hub.Create(t.Context(), object))
	}
	check.Must(t, yard.InstallRuntimes(t.Context(), second))
	_, err = second.Run(t.Context(), "manager", "manager", "--kubeconfig="+second.KubeconfigPath, "--namespace=trainyard-system",
		"--leader-elect=false", "--health-probe-bind-address=0", "--metrics-bind-address=0")
	check.Must(t, err)
	first := s.submit("10s", on(worker))
	s.Runs(first, worker, 1)
	before := copyOf(gomega.NewWithT(t), worker, first)

	same := yard.Job{Name: first.Name, GPUs: 1, RunFor: "1s"}.TrainJob()
	other := yard.Job{Name: first.Name + "-other", GPUs: 1, RunFor: "1s"}.TrainJob()
	for _, job := range []*trainer.TrainJob{same, other} {
		check.Must(t, hub.Create(t.Context(), job))
	}
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(hub.Get(t.Context(), client.ObjectKeyFromObject(other), other)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionTrue(other.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue())
		d := &v1alpha1.Dispatch{}
		g.Expect(hub.Get(t.Context(), client.ObjectKeyFromObject(same), d)).To(gomega.Succeed())
		g.Expect(d.Status.History).To(gomega.ContainElement(gomega.HaveField("Outcome", v1alpha1.OutcomeNameConflict)))
	})
	if after := copyOf(gomega.NewWithT(t), worker, first); after.UID != before.UID || after.Generation != before.Generation || after.DeletionTimestamp != nil {
		t.Errorf("the second hub has touched the first one's copy: %+v", after.ObjectMeta)
	}
	for _, job := range []*trainer.TrainJob{same, other} {
		check.Must(t, hub.Delete(t.Context(), job))
	}
	s.gone(hub, same, &v1alpha1.Dispatch{})
	s.gone(hub, other, &v1alpha1.Dispatch{})
	s.gone(w.Workers[worker], other, &trainer.TrainJob{})
	s.ends(first)
	s.Attempt(first, 1)
}
