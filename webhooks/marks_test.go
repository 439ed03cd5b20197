// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// These tests check config/admission. It does not need this package and works with a Kubeflow Trainer too.

// Writers of a worker's TrainJobs.
const (
	theHub   = "system:serviceaccount:trainyard-system:trainyard-hub"
	theAgent = "system:serviceaccount:kubeflow-system:trainyard-worker-agent"
	aUser    = "user"
)

// withMarks returns a namespace in which aUser may do everything. The cluster has the policies and roles of hub and
// agent.
func withMarks(t *testing.T) (*environment, string) {
	t.Helper()
	e := env(t)
	ns := e.namespace(t)
	err := e.cluster.ApplyFiles(t.Context(), "../config/admission/marks.yaml", "../config/admission/fence.yaml",
		"../config/worker/cluster_role.yaml", "../config/worker/cluster_role_binding.yaml",
		"../config/worker-agent/cluster_role.yaml", "../config/worker-agent/cluster_role_binding.yaml")
	check.Must(t, err)
	everything := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	meta := metav1.ObjectMeta{Namespace: ns, Name: "owner"}
	e.create(t, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{everything}})
	e.create(t, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "owner"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: aUser}},
	})
	probe := job(ns, "probe", suspended, with(nil, map[string]string{v1alpha1.AnnotationFenced: "1.1"}))
	fenced := job(ns, "probe-of-fence", suspended, with(copyLabels, copyAnnotations))
	e.create(t, fenced)
	resumed := fenced.DeepCopy()
	resume(resumed)
	eventually(t, "policies to be in force, and rights", func(g gomega.Gomega) {
		patch := client.MergeFrom(fenced)
		g.Expect(apierrors.IsForbidden(e.Patch(t.Context(), resumed.DeepCopy(), patch, client.DryRunAll))).To(gomega.BeTrue())
		g.Expect(apierrors.IsForbidden(e.as(t, aUser).Create(t.Context(), probe, client.DryRunAll))).To(gomega.BeTrue())
		probe := job(ns, "probe", suspended)
		g.Expect(e.as(t, aUser).Create(t.Context(), probe, client.DryRunAll)).To(gomega.Succeed())
	})
	return e, ns
}

// as returns a client with the rights of who.
func (e *environment) as(t *testing.T, who string) client.Client {
	t.Helper()
	config := rest.CopyConfig(e.cluster.Config)
	config.Impersonate.UserName = who
	c, err := client.New(config, client.Options{Scheme: e.Scheme(), Mapper: e.RESTMapper()})
	check.Must(t, err)
	return c
}

// patch changes a TrainJob with a client, and returns the API server's answer.
func (e *environment) patch(t *testing.T, who client.Client, j *trainer.TrainJob, change func(*trainer.TrainJob)) error {
	t.Helper()
	before := e.get(t, j)
	changed := before.DeepCopy()
	change(changed)
	return who.Patch(t.Context(), changed, client.MergeFrom(before))
}

// with sets labels and annotations. An empty value removes one.
func with(labels, annotations map[string]string) func(*trainer.TrainJob) {
	change := func(all, changes map[string]string) map[string]string {
		all = maps.Clone(all)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, changes)
		maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
		return all
	}
	return func(j *trainer.TrainJob) {
		j.Labels, j.Annotations = change(j.Labels, labels), change(j.Annotations, annotations)
	}
}

var (
	copyLabels      = map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelOriginUID: "origin"}
	copyAnnotations = map[string]string{
		v1alpha1.AnnotationAttempt: "1", v1alpha1.AnnotationFailover: "Fenced", v1alpha1.AnnotationChallenge: "1.1",
		v1alpha1.AnnotationFenced: "1.1", v1alpha1.AnnotationLaterAttempt: "2",
	}
)

// checkRefused checks that a request was refused with a message that names a key.
func checkRefused(t *testing.T, err error, field, key string) {
	t.Helper()
	words := field + ": only Trainyard may set, change or remove " + key + "; leave these"
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
		t.Errorf("the answer is %v, and should be a refusal with the words %q", err, words)
	}
}

func TestMarksCannotBeForged(t *testing.T) {
	e, ns := withMarks(t)
	user := e.as(t, aUser)
	plain := job(ns, "plain", suspended)
	check.Must(t, user.Create(t.Context(), plain))
	forge := func(key string, change func(*trainer.TrainJob)) {
		t.Run(key, func(t *testing.T) {
			field := "metadata.annotations"
			if copyLabels[key] != "" {
				field = "metadata.labels"
			}
			checkRefused(t, user.Create(t.Context(), job(ns, "forged", suspended, change)), field, key)
			checkRefused(t, e.patch(t, user, plain, change), field, key)
		})
	}
	for key := range copyLabels {
		forge(key, with(map[string]string{key: "forged"}, nil))
	}
	others := []string{v1alpha1.AnnotationSource, v1alpha1.AnnotationPods, "trainyard.dev/of-tomorrow"}
	for _, key := range append(slices.Sorted(maps.Keys(copyAnnotations)), others...) {
		forge(key, with(nil, map[string]string{key: "forged"}))
	}
	err := user.Create(t.Context(), question(ns), client.DryRunAll)
	checkRefused(t, err, "metadata.annotations", v1alpha1.AnnotationPods)
}

func TestMarksCannotBeRemoved(t *testing.T) {
	e, ns := withMarks(t)
	user, copied := e.as(t, aUser), job(ns, "copy", suspended, with(copyLabels, copyAnnotations))
	check.Must(t, e.as(t, theHub).Create(t.Context(), copied))
	for _, value := range []string{"", "forged"} {
		for key := range copyLabels {
			t.Run(key+"="+value, func(t *testing.T) {
				changed := e.patch(t, user, copied, with(map[string]string{key: value}, nil))
				checkRefused(t, changed, "metadata.labels", key)
			})
		}
		for key := range copyAnnotations {
			t.Run(key+"="+value, func(t *testing.T) {
				changed := e.patch(t, user, copied, with(nil, map[string]string{key: value}))
				checkRefused(t, changed, "metadata.annotations", key)
			})
		}
	}
}

// TestMarksKeepNobodyFromOtherWork: a write that does not change the marks passes, whoever sends it.
func TestMarksKeepNobodyFromOtherWork(t *testing.T) {
	e, ns := withMarks(t)
	user := e.as(t, aUser)
	copied := job(ns, "copy", suspended, with(copyLabels, copyAnnotations), func(j *trainer.TrainJob) {
		j.Finalizers = []string{"test.dev/hold"}
	})
	check.Must(t, e.as(t, theHub).Create(t.Context(), copied))
	for _, step := range []struct {
		name string
		do   func(*trainer.TrainJob)
	}{
		{"other labels and annotations", with(map[string]string{"team": "a"}, map[string]string{"note": "x"})},
		{"the user's annotations", with(nil, map[string]string{
			v1alpha1.AnnotationTTL: "60", v1alpha1.AnnotationClusters: "gpu", v1alpha1.AnnotationPriorityClass: "high",
		})},
		{"the spec", func(j *trainer.TrainJob) {
			j.Spec.RuntimePatches = []trainer.RuntimePatch{{Manager: "kueue.x-k8s.io/manager"}}
		}},
		{"owners", func(j *trainer.TrainJob) {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}}
		}},
	} {
		check.Equal(t, nil, e.patch(t, user, copied, step.do), "a change of %s is refused", step.name)
	}
	check.Equal(t, nil, user.Delete(t.Context(), copied), "the deletion is refused")
	check.Equal(t, nil, e.patch(t, user, copied, func(j *trainer.TrainJob) { j.Finalizers = nil }),
		"a finalizer of a copy that is being deleted may not go")
}

// TestWhoKeepsLeasesWritesMarks: hub and agent, with the rights from config, and admins may write marks.
func TestWhoKeepsLeasesWritesMarks(t *testing.T) {
	e, ns := withMarks(t)
	for i, who := range []client.Client{e.as(t, theHub), e.Client} {
		copied := job(ns, fmt.Sprint("copy-", i), suspended, with(copyLabels, copyAnnotations))
		if err := who.Create(t.Context(), copied); err != nil {
			t.Fatalf("a copy cannot be created: %v", err)
		}
		for _, writer := range []client.Client{who, e.as(t, theAgent)} {
			for _, value := range []string{"3.1", ""} {
				mark := with(nil, map[string]string{v1alpha1.AnnotationFenced: value})
				check.Equal(t, nil, e.patch(t, writer, copied, mark), "the mark %q cannot be written", value)
			}
		}
		release := func(j *trainer.TrainJob) { j.Labels, j.Annotations = nil, nil }
		check.Equal(t, nil, e.patch(t, who, copied, release), "an unknown copy cannot be released")
	}
}

// resume is what a Kueue does to a suspended job that it has admitted.
func resume(j *trainer.TrainJob) { j.Spec.Suspend = new(false) }

// unfence is what a hub does to a copy that may go on.
var unfence = with(nil, map[string]string{v1alpha1.AnnotationFenced: ""})

// TestFencedCopyStaysSuspended: nobody can resume a copy that the agent has stopped. Everything else of the copy can be
// written.
func TestFencedCopyStaysSuspended(t *testing.T) {
	e, ns := withMarks(t)
	fenced := job(ns, "fenced", suspended, with(copyLabels, copyAnnotations))
	check.Must(t, e.as(t, theHub).Create(t.Context(), fenced))
	for _, who := range []string{aUser, theHub, theAgent} {
		err := e.patch(t, e.as(t, who), fenced, resume)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it stays suspended until the hub removes the annotation") {
			t.Errorf("%s resumes a copy that is fenced: %v", who, err)
		}
	}
	for name, change := range map[string]func(*trainer.TrainJob){
		"Kueue's entry": func(j *trainer.TrainJob) {
			j.Spec.RuntimePatches = append(j.Spec.RuntimePatches, trainer.RuntimePatch{Manager: "kueue.x-k8s.io/manager"})
		},
		"finalizers": func(j *trainer.TrainJob) { j.Finalizers = []string{"test.dev/hold"} },
		"no longer":  func(j *trainer.TrainJob) { j.Finalizers = nil },
	} {
		check.Equal(t, nil, e.patch(t, e.as(t, aUser), fenced, change), "a change of %s is refused", name)
	}
}

// TestFencedCopyGoesOn: the hub resumes a copy in one write, or takes the mark off and leaves the rest to Kueue.
func TestFencedCopyGoesOn(t *testing.T) {
	e, ns := withMarks(t)
	hub, user := e.as(t, theHub), e.as(t, aUser)
	for _, name := range []string{"of-the-hub", "of-kueue"} {
		copied := job(ns, name, suspended, with(copyLabels, copyAnnotations))
		check.Must(t, hub.Create(t.Context(), copied))
		steps := []func() error{func() error {
			return e.patch(t, hub, copied, func(j *trainer.TrainJob) { unfence(j); resume(j) })
		}}
		if name == "of-kueue" {
			steps = []func() error{
				func() error { return e.patch(t, hub, copied, unfence) },
				func() error { return e.patch(t, user, copied, resume) },
			}
		}
		for i, step := range steps {
			check.Equal(t, nil, step(), "%s: write %d is refused", name, i)
		}
	}
}

// TestMarkedCopyThatIsNotSuspended: if the rule was installed after the copy got the mark, the copy can still be
// written.
func TestMarkedCopyThatIsNotSuspended(t *testing.T) {
	e, ns := withMarks(t)
	annotations := maps.Clone(copyAnnotations)
	delete(annotations, v1alpha1.AnnotationFenced)
	copied := job(ns, "marked", with(copyLabels, annotations))
	check.Must(t, e.as(t, theHub).Create(t.Context(), copied))
	for _, change := range []func(*trainer.TrainJob){
		with(nil, map[string]string{v1alpha1.AnnotationFenced: "1.1"}),
		func(j *trainer.TrainJob) { j.Finalizers = []string{"test.dev/hold"} },
		func(j *trainer.TrainJob) { j.Finalizers = nil },
		func(j *trainer.TrainJob) { j.Spec.Suspend = new(true) },
	} {
		check.Equal(t, nil, e.patch(t, e.as(t, theAgent), copied, change), "a write is refused")
	}
}
