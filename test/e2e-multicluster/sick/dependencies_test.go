// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package sick

import (
	"encoding/json"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

const doNotTell = "do-not-tell"

// TestMissingSecret: a worker without what the pods name refuses the copy before a pod exists, and another worker runs the
// job. If no worker has it, the hub says what is missing, and the job runs when it is there.
func TestMissingSecret(t *testing.T) {
	for _, worker := range []string{east, west} {
		err := y.Workers[worker].Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}})
		check.Must(t, client.IgnoreAlreadyExists(err))
	}
	submit := func(name, secret string) *trainer.TrainJob {
		is := sickness{job: yard.Job{RunFor: "100ms"}, change: func(job *trainer.TrainJob) {
			job.Spec.Trainer.Env = []corev1.EnvVar{{Name: "HF_TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "token",
			}}}}
		}}
		return is.submit(t, name)
	}
	addSecret := func(worker, name, key string) {
		check.Must(t, y.Workers[worker].Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}, StringData: map[string]string{key: doNotTell},
		}))
	}

	addSecret(west, "only-west", "token")
	made := watchMade(t, east, "elsewhere")
	expectWords(t, submit("elsewhere", "only-west"), "State: Complete on worker west")
	expectNothingMade(t, made)

	addSecret(east, "hf-token", "another")
	madeEast, madeWest := watchMade(t, east, "nowhere"), watchMade(t, west, "nowhere")
	job := submit("nowhere", "hf-token")
	expectWords(t, job, "State: Waiting (Rejected)",
		`Secret "hf-token" has no key "token", which env HF_TOKEN of step node needs`,
		`Secret "hf-token" is not in namespace "vision", and env HF_TOKEN of step node needs it`)
	expectToldOfSecret(t, job)
	expectNothingMade(t, append(madeEast, madeWest...))
	addSecret(west, "hf-token", "token")
	expectWords(t, job, "State: Complete on worker west")
	expectNothingMade(t, madeEast)
}

// watchMade watches what could become of a job on a worker.
func watchMade(t *testing.T, worker, job string) (watches []watch.Interface) {
	t.Helper()
	for list, selects := range map[client.ObjectList]client.ListOption{
		&corev1.PodList{}:            client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: job},
		&jobsetv1alpha2.JobSetList{}: client.MatchingFields{"metadata.name": job},
		&trainer.TrainJobList{}:      client.MatchingFields{"metadata.name": job},
	} {
		w, err := y.Workers[worker].Watch(t.Context(), list, client.InNamespace(team), selects)
		check.Must(t, err)
		t.Cleanup(w.Stop)
		watches = append(watches, w)
	}
	return watches
}

func expectNothingMade(t *testing.T, watches []watch.Interface) {
	t.Helper()
	for _, w := range watches {
		select {
		case event, open := <-w.ResultChan():
			t.Errorf("a worker that lacks a Secret got %T (watch is open: %t): %+v", event.Object, open, event)
		default:
		}
	}
}

// expectToldOfSecret: Dispatch, condition and Event of a job say what is missing on the last worker that was asked, and
// nobody tells what is in a Secret.
func expectToldOfSecret(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	d := &v1alpha1.Dispatch{}
	check.Must(t, y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), d))
	placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
	if placed == nil || !strings.Contains(placed.Message, `Secret "hf-token"`) {
		t.Errorf("the condition Placed is %+v", placed)
	}
	check.Equal(t, 2, len(d.Status.Refusals), "refusals %+v", d.Status.Refusals)
	var events eventsv1.EventList
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.Hub.List(t.Context(), &events, client.InNamespace(team))).To(gomega.Succeed())
		told := 0
		for _, event := range events.Items {
			if event.Regarding.Name == job.Name && event.Reason == "Rejected" && strings.Contains(event.Note, `Secret "hf-token"`) {
				told++
			}
		}
		g.Expect(told).NotTo(gomega.BeZero()) // Events of one reason become one series.
	})
	for _, object := range []any{d, events} {
		if text, err := json.Marshal(object); err != nil || strings.Contains(string(text), doNotTell) {
			t.Errorf("%T has the contents of a Secret (error %v): %s", object, err, text)
		}
	}
}
