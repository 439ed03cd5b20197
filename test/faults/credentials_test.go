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

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/links"
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
		if err != nil {
			t.Error(err)
		}
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
		if err := client.IgnoreAlreadyExists(w.Workers[worker].Create(context.Background(), again)); err != nil {
			t.Error(err)
		}
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

// The worker takes away the right to create TrainJobs: it refuses the copy, and the next worker gets the job.
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
	s.historyHas(job, 1, worker, v1alpha1.OutcomeRejected)
	gomega.NewWithT(t).Expect(w.DispatchOf(gomega.NewWithT(t), job).Status.History[0].Message).To(gomega.ContainSubstring("forbidden"))
}
