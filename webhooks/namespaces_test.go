// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
)

// aTrainer is a user who may write TrainJobs and runtimes in all namespaces, and no pods.
const aTrainer = "trainer"

// withProtection returns namespaces of a cluster that has config/admission/namespaces.yaml: one that only its name
// protects, one that its label protects, and one whose label lifts the protection of its name.
func withProtection(t *testing.T) (e *environment, named, labelled, lifted string) {
	t.Helper()
	e, plain := withMarks(t)
	labelled = e.namespace(t, func(ns *corev1.Namespace) { ns.Labels = map[string]string{"trainyard.dev/protected": "true"} })
	named, lifted = "kubeflow-system", "kube-"+plain
	for name, label := range map[string]string{named: "", lifted: "false"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if label != "" {
			ns.Labels = map[string]string{"trainyard.dev/protected": label}
		}
		if err := e.Create(t.Context(), ns); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	check.Must(t, e.cluster.ApplyFiles(t.Context(), "../config/admission/namespaces.yaml"))
	meta := metav1.ObjectMeta{Name: aTrainer + "-" + plain}
	e.create(t, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"trainer.kubeflow.org"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}})
	e.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: aTrainer}},
	})
	eventually(t, "policy to be in force, and rights", func(g gomega.Gomega) {
		for _, ns := range []string{"kube-system", named, labelled} {
			err := e.as(t, theHub).Create(t.Context(), job(ns, "probe", suspended), client.DryRunAll)
			g.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("is protected")))
		}
		for _, ns := range []string{plain, lifted} {
			g.Expect(e.as(t, theHub).Create(t.Context(), job(ns, "probe", suspended), client.DryRunAll)).To(gomega.Succeed())
			g.Expect(e.as(t, aTrainer).Create(t.Context(), job(ns, "probe", suspended), client.DryRunAll)).To(gomega.Succeed())
		}
	})
	return e, named, labelled, lifted
}

// checkProtected checks that a request was refused because its namespace is protected, with words that help.
func checkProtected(t *testing.T, what string, err error, namespace string) {
	t.Helper()
	words := []string{"metadata.namespace: " + namespace + " is protected", `trainyard.dev/protected: "false"`}
	for _, word := range words {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: the answer is %v, and should be a refusal with the words %q", what, err, word)
		}
	}
}

// TestProtectedNamespaceOfAWorker: who may write TrainJobs everywhere, as the hub may, gets no pod with the accounts of a
// protected namespace.
func TestProtectedNamespaceOfAWorker(t *testing.T) {
	e, named, labelled, _ := withProtection(t)
	for _, ns := range []string{"kube-system", named, labelled} {
		for _, who := range []string{theHub, aTrainer} {
			writer := e.as(t, who)
			checkProtected(t, who+" creates a TrainJob", writer.Create(t.Context(), job(ns, "intruder", suspended), client.DryRunAll), ns)
			runtime := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{
				Namespace: ns, Name: "intruder", Labels: map[string]string{"trainer.kubeflow.org/framework": "torch"},
			}}
			source := &trainer.ClusterTrainingRuntime{}
			check.Must(t, e.Get(t.Context(), client.ObjectKey{Name: "torch-distributed"}, source))
			runtime.Spec = source.Spec
			checkProtected(t, who+" creates a runtime", writer.Create(t.Context(), runtime, client.DryRunAll), ns)
		}
		check.Equal(t, nil, e.Create(t.Context(), job(ns, "admins", suspended), client.DryRunAll),
			"who may create pods in %s may not create TrainJobs", ns)
	}
}

// TestRunningCopyOfAProtectedNamespace: a copy that is there already, from before the policy or the label, goes on: the
// hub stops it, lets it go on and deletes it. But nothing of it that reaches a pod can be changed with the hub's rights.
func TestRunningCopyOfAProtectedNamespace(t *testing.T) {
	e, _, labelled, _ := withProtection(t)
	hub := e.as(t, theHub)
	copied := job(labelled, "copy", suspended, with(copyLabels, nil))
	e.create(t, copied)
	for what, change := range map[string]func(*trainer.TrainJob){
		"the pods' account": func(j *trainer.TrainJob) {
			j.Spec.RuntimePatches = []trainer.RuntimePatch{{Manager: "example.com/x"}}
		},
		"all of trainer": func(j *trainer.TrainJob) { j.Spec.Trainer = nil },
	} {
		checkProtected(t, "the hub changes "+what, e.patch(t, hub, copied, change), labelled)
	}
	for _, step := range []struct {
		what   string
		change func(*trainer.TrainJob)
	}{
		{"resumes it", func(j *trainer.TrainJob) { j.Spec.Suspend = new(false) }},
		{"suspends it", func(j *trainer.TrainJob) { j.Spec.Suspend = new(true) }},
		{"answers a challenge", with(nil, copyAnnotations)},
	} {
		check.Equal(t, nil, e.patch(t, hub, copied, step.change), "the hub %s", step.what)
	}
	check.Equal(t, nil, hub.Delete(t.Context(), copied), "the hub deletes it")
}
